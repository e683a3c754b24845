"""Finding the expressions where the first number goes wrong: candidates are generated, tested, and ranked.

An expression is a root where all that it is made of is right, and it is not. Proved is a root in whose place a step of
the right program makes failing tests pass: in each of them what it is made of is right, else an earlier one is wrong.
Two mistakes are two roots, often one behind the other: with the first one right, some of what follows is right, too.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import NamedTuple

from torch import Tensor

from whichline.engine.suite import Test
from whichline.locate.breach import put_operand
from whichline.locate.candidates import Candidates
from whichline.locate.causes import (
    find_cause,
    find_cause_in_most,
    find_common_cause,
    find_one_call,
    follow_constructors,
    is_by_chance,
)
from whichline.locate.difference import compare
from whichline.locate.found import Found, is_plain, join_patches, list_explained, rank
from whichline.locate.options import Option, Options, name_at
from whichline.locate.probe import Expression
from whichline.locate.run import Experiment, choose_kinds
from whichline.locate.trace import Trace
from whichline.locate.values import is_equal

TRACES = 3  # tests that are held against steps at once
# The changes of each root that are tried first, and then, where a reference has many steps of one shape.
FIRST_TURN, SECOND_TURN, ALL = (0, 8), (8, None), (0, None)
PLACES = 3  # that together explain the tests
NEAREST = 6  # changes that are tried for the first of two places, and places where any test is tried
FIRST = 2  # changes that are tried there
END = "the answer"  # the steps that come last begin like that
MENDED = 2  # steps that a change makes right, so that it is not by chance
UNMOVED = 3  # changes of a place that leave the answer as it is: then it does not matter


class Outcome(NamedTuple):
    """The effect of one replacement on a run."""

    passed: bool  # whether the run passes
    is_clean: bool  # whether all that follows is right, too
    moved: bool  # whether something else comes of it
    mended: int  # how many steps are right that were not


@dataclass
class Search:
    """Searches for the expressions whose replacements make failing tests pass."""

    experiment: Experiment  # the tests, the most telling ones first, and the replacements found before
    is_loose: bool = False  # whether the operands of a root may be unknown values that are made of right ones
    tried: Sequence[Expression] = ()  # roots that need not be tried again
    traces: Sequence[Trace] = ()  # of some of the tests, without a replacement
    roots: Sequence[Expression] = ()  # the first divergences in these traces, in the order of computation
    calls: Sequence[Expression] = ()  # calls of functions that are wrong inside, in an unknown way
    turn: tuple[int, int | None] = ALL  # which of the changes of a root are tried
    candidates: Candidates = field(default_factory=lambda: Candidates({}))
    # replacements with which tests still fail, each with the number of steps that are right then
    near: list[tuple[int, Options]] = field(default_factory=list)

    def find(self, most: int = PLACES) -> list[Found]:
        """Find the places, at most so many, that explain most tests most plainly; none if nothing is proved."""
        self.roots = self.find_roots()
        if any(trace.known.steps.is_partial for trace in self.traces):
            self.turn = FIRST_TURN
        self.candidates = Candidates({root: self.trace_of(root) for root in (*self.roots, *self.calls)})
        best: list[Found] = []
        for found in self._list_explanations(most):
            best = max(best, found, key=rank)
            if self._is_whole(best) and is_plain(best):
                break
        if not best and self.turn == FIRST_TURN and not self.is_loose:
            self.turn = SECOND_TURN
            best = next(filter(None, self._list_explanations(most)), [])
        return best

    def _list_explanations(self, most: int) -> Iterator[list[Found]]:
        """List what explains the tests, what takes longer only where that has not explained all of them."""
        whole, part = self._try_all(self.roots)
        yield [whole] if whole else []
        is_first = not self.experiment.patch and not self.is_loose and bool(self.roots)
        if is_first:
            yield self._find_common_cause(missing=not (whole and whole.is_clean))
        if part and most > 1 and (not whole or part.difference.is_simple):
            rest = self._list_left(part)
            more = Search(self.experiment.add(part.patch, rest)).find(most - 1) if rest else []
            yield self._leave_out_needless([part, *more]) if more else []
        if whole:
            yield self._find_together(self._list_near(), 2) if is_first and not whole.is_clean else []
            return
        if part and (part.difference.is_simple or 2 * len(part.explains) >= len(self.experiment.failing)):
            yield [part]
            return
        if is_first:
            yield self._find_loosely()
        if not self.is_loose:
            near = self._list_near()
            yield (call := self._find_call())
            if call and self.turn != ALL:
                return  # of many steps of one shape, two make most tests pass
            yield self._find_together(near, most)
        if is_first:
            yield self._find_anywhere()

    def _is_whole(self, found: Sequence[Found]) -> bool:
        return len(list_explained(found)) == len(self.experiment.failing)

    # Roots.

    def find_roots(self) -> list[Expression]:
        """Run some of the tests and list the roots in them, in the order in which they are computed.

        Those that ask for no gradients come first: they are run again and again, and take half the time.
        """
        tests = choose_kinds(self.experiment.failing, TRACES)
        traces = [trace for trace in map(self.experiment.run, tests) if trace.steps and trace.places]
        self.traces = sorted(traces, key=lambda trace: trace.needs_gradients)
        return self._list_roots() if self.traces else []

    def _list_roots(self) -> list[Expression]:
        """The roots in the order in which they are computed; tensors made of nothing but numbers come last."""
        places = dict.fromkeys(
            place for trace in self.traces for place in trace.places if place not in self.experiment.patch
        )
        new = [place for place in places if place not in self.tried and not self.experiment.runner.is_answered(place)]
        roots = [place for place in new if self._is_root(place)]
        if not any(isinstance(self.trace_of(place).value(place)[0], Tensor) for place in roots):
            roots += [place for trace in self.traces[:1] for place in trace.list_returned_early()]
        if not roots:
            roots = [place for place in new if self.traces[0].is_wrong_initial_value(place)]
        self.calls = [place for place in new if place not in roots and self._is_call(place)]
        return sorted(roots, key=self._rank_root)

    def _rank_root(self, place: Expression) -> tuple[bool, bool]:
        trace = self.trace_of(place)
        return trace.is_given(place), trace.known.steps.is_partial and trace.is_number(place)

    def _is_root(self, place: Expression) -> bool:
        """Tell whether an expression is a root somewhere; elsewhere it may be right by chance."""
        return any(place in trace.values and trace.is_first_divergence(place, self.is_loose) for trace in self.traces)

    def _is_call(self, place: Expression) -> bool:
        """Tell whether an expression calls a function that is wrong inside; it must not hide what was found before."""
        put = self.experiment.patch.keys()
        runs = (trace for trace in self.traces if place in trace.values)
        return any(trace.is_called_rightly(place) and not put & trace.inside[place] for trace in runs)

    def trace_of(self, place: Expression) -> Trace:
        """A run in which an expression is a root, or at least computed."""
        runs = [trace for trace in self.traces if place in trace.values]
        return next((trace for trace in runs if trace.is_first_divergence(place, self.is_loose)), runs[0])

    # One place.

    def _try_all(self, roots: Sequence[Expression]) -> tuple[Found | None, Found | None]:
        """The first change that explains all tests, and the best one that explains some.

        What is told of a tensor made of numbers alone is better than what is not simple.
        """
        whole: Found | None = None
        part: list[Found] = []
        for root in roots:
            is_given = self.trace_of(root).is_given(root)
            if whole and not (is_given and whole.trace.is_before(root, whole.place)):
                continue
            for found in self._try(root):
                if not self._is_whole([found]):
                    part = max(part, [found], key=lambda found: (bool(found), is_plain(found), rank(found)))
                elif is_given or (found.difference.is_simple and len(found.patch) == 1):
                    return found, next(map(self._refine, part), None)
                else:
                    whole = whole or found
        return whole, next(map(self._refine, part), None)

    def _try(self, root: Expression) -> Iterator[Found]:
        """Try the changes of a root, and note those that come near."""
        trace, unmoved = self.trace_of(root), 0
        for change in islice(self.candidates.list(root), *self.turn):
            if self.experiment.runner.is_spent or unmoved == UNMOVED:
                return
            what = root, frozenset(change.items())
            then = self.experiment.see(trace.test, change, what, partial(judge, trace, root, change))
            if then.passed:
                if found := self._prove(change):
                    found = self._refine(found) if self._is_whole([found]) else found
                    yield replace(found, is_clean=then.is_clean)
            elif not then.moved:
                unmoved += 1
            else:
                fits = change[root].axes is not None if root in change else True
                self.near += [(then.mended, change)] * (fits or then.mended > 1)  # other shapes mend by chance

    def _prove(self, change: Options, trace: Trace | None = None) -> Found | None:
        """Run all tests with a change; None if none of them passes for that reason."""
        place = next(iter(change))
        what = place, self.is_loose, place in self.calls

        def explains(then: Trace) -> bool:
            return then.passed and place in then.values and self._has_right_operands(then, place)

        tests = [test for test in self.experiment.failing if self.experiment.see(test, change, what, explains)]
        trace = trace or self.trace_of(place)
        is_part = len(tests) < len(self.experiment.failing)
        if not tests or (is_part and is_by_chance(self.experiment.only(tests), trace, change)):
            return None
        return Found(change, trace, compare(trace, change), tuple(test.name for test in tests))

    def _refine(self, proved: Found) -> Found:
        """Find the cause of what was proved, and the words for it."""
        found = self._point(proved)
        difference, place = found.difference, proved.place
        if difference.is_needless and not self._can_go(found):
            difference = replace(difference, words=difference.instead, is_simple=False, is_needless=False)
            found = replace(found, difference=difference)
        if not difference.is_simple and not self.experiment.patch and [*found.patch] == [place]:
            only = self._only(found)
            if cause := find_cause_in_most(only, found.trace, place, proved.option):
                names = tuple(test.name for test in cause[1])
                return replace(found, patch=cause[0], difference=compare(found.trace, cause[0]), explains=names)
        return found

    def _has_right_operands(self, then: Trace, place: Expression) -> bool:
        return then.has_right_operands(place, self.is_loose, looks_inside=place not in self.calls, may_count=True)

    def _can_go(self, found: Found) -> bool:
        """Tell whether tests pass without a step, which gives back one of the things that go in."""
        place, trace, runner = next(iter(found.patch)), found.trace, self.experiment.runner
        only = trace.find_first_wrong(place) if len(trace.value(place)) > 1 else None
        changes = [{place: put_operand(runner, each, True, only)} for each in trace.list_operands(place)]
        return any(
            all(self.experiment.run(test, each).passed for test in self._only(found).failing) for each in changes
        )

    def _only(self, found: Found) -> Experiment:
        """The experiment of the tests that are explained."""
        return self.experiment.only([test for test in self.experiment.failing if test.name in found.explains])

    def _list_left(self, found: Found) -> list[Test]:
        """List the tests that still fail with what was found."""
        others = [test for test in self.experiment.failing if test.name not in found.explains]
        return [test for test in others if not self.experiment.passes(test, found.patch)]

    def _point(self, found: Found, others: Sequence[Found] = ()) -> Found:
        """The place that a tutor would point at: the end of constructors, or the cause.

        Args:
            found: where right values make tests pass.
            others: what is put beside them.
        """
        if len(found.patch) > 1:
            return found
        experiment, trace = self._only(found), found.trace
        experiment = experiment.add(join_patches(others)) if others else experiment
        patch = follow_constructors(experiment, trace, found.place, found.option)
        ((root, wanted),) = patch.items()
        patch = find_cause(experiment, trace, root, wanted) or patch
        found = found if patch == found.patch else replace(found, patch=patch, difference=compare(trace, patch))
        return replace(found, shown=_find_shown(trace, found.place, found.option))

    def _find_common_cause(self, missing: bool) -> list[Found]:
        roots = [(self.trace_of(root), root) for root in self.roots]
        if not (cause := find_common_cause(self.experiment, roots, missing)):
            return []
        everything = tuple(test.name for test in self.experiment.failing)
        return [Found(cause[1], cause[0], compare(*cause), everything)]

    def _find_call(self) -> list[Found]:
        """The smallest call of a function that is wrong inside, in a way that is not known: `rotate_half(x)`."""
        whole, _ = self._try_all(self.calls)
        return [whole] if whole else []

    # Several places.

    def _find_loosely(self) -> list[Found]:
        """Find a root with an unknown operand that is itself made of right values."""
        found = Search(self.experiment, is_loose=True, tried=self.roots).find(most=1)
        return found if self._is_whole(found) and is_plain(found) else []

    def _find_together(self, near: Sequence[tuple[int, Options]], most: int) -> list[Found]:
        """Find replacements that only together make the tests pass, two before three.

        Whatever stands in the first place, the right answer in the last one would do: so with a change in the first one
        something that follows is right, too, or its value is that of the step but for something elementary.
        """
        best: list[Found] = []
        if not any(mended for mended, _ in near):
            most = min(most, 2)  # with nothing to go by, three take long
        for behind in range(1, most):
            for mended, change in near[: NEAREST // behind**2]:
                if self.experiment.runner.is_spent:
                    break
                if not (others := Search(self.experiment.add(change)).find(behind)):
                    continue
                trace = self.trace_of(next(iter(change)))
                first = self._point(Found(change, trace, compare(trace, change), others[-1].explains), others)
                if not mended and (first.difference.is_extra or not first.difference.is_simple):
                    continue
                if (
                    not others[-1].difference.is_simple
                    and others[-1].option.names[0].startswith(END)
                    and mended < MENDED
                ):
                    continue  # with the right answer at the end any test passes
                if self._is_whole(others[-1:]):
                    return self._leave_out_needless([first, *others])
                best = max(best, [first, *others], key=lambda found: len(found[-1].explains) if found else 0)
        return best if best and 2 * len(best[-1].explains) >= len(self.experiment.failing) else []

    def _list_near(self) -> list[tuple[int, Options]]:
        """The changes to try first, and how many steps are right with each; if none, those of what differs simply."""
        most = max((mended for mended, _ in self.near), default=0)
        if most:
            mending = [each for each in self.near if 2 * each[0] >= most]
            return sorted(mending, key=lambda each: (-each[0], next(iter(each[1].values())).axes is None))[:NEAREST]
        traced = [(self.trace_of(next(iter(each[1]))), each) for each in self.near]
        near = [(trace, each) for trace, each in traced if not trace.is_number(next(iter(each[1])))]
        return [each for _, each in sorted(near, key=lambda pair: not compare(pair[0], pair[1][1]).is_simple)][:NEAREST]

    def _leave_out_needless(self, found: list[Found]) -> list[Found]:
        """Leave out a place without which the others are proved as well."""
        for needless in found[:-1]:
            *others, last = [each for each in found if each is not needless]
            experiment = self.experiment.add(join_patches(others))
            search = Search(experiment)
            proved = search._prove(last.patch, experiment.run(last.trace.test))
            proved = search._refine(proved) if proved else None
            is_as_plain = proved and (proved.difference.is_simple or not needless.difference.is_simple)
            if proved and is_as_plain and self._is_whole([proved]):
                return self._leave_out_needless([*others, proved])
        return found

    def _find_anywhere(self) -> list[Found]:
        """A change that makes other tests pass than those that were looked at."""
        for root in self.roots[:NEAREST]:
            for option in self.candidates.options(root)[:FIRST]:
                if not self.experiment.runner.is_spent and (found := self._prove({root: option})):
                    found = self._refine(found)
                    rest = self._list_left(found)
                    return [found, *(Search(self.experiment.add(found.patch, rest)).find(most=1) if rest else [])]
        return []


def _find_shown(trace: Trace, place: Expression, option: Option) -> Expression | None:
    """Find the call to show in place of a constant that it passes, or of what is wrong in one of several calls."""
    times = range(len(trace.value(place)))
    if len(times) == 1 or trace.is_number(place):
        return trace.find_call(place)
    match = trace.match(place)
    if match and len(match.names) == len(times):
        wrong = [time for time in times if match.names[time] != name_at(option, trace.steps, time)]
    else:
        wrong = [time for time in times if not trace.is_right_at(place, time)]
    if len(wrong) != 1:
        return None
    return trace.find_given(place, wrong[0]) if place.is_read else find_one_call(trace, place, wrong[0])


def judge(before: Trace, root: Expression, change: Options, then: Trace) -> Outcome:
    moved = then.came is None or not is_equal(then.came, before.came)
    mended = count_mended(before, then, change) if moved and not then.passed else 0
    return Outcome(then.passed, then.passed and then.is_clean_after(root), moved, mended)


def count_mended(before: Trace, then: Trace, change: Options) -> int:
    """Count the steps that are right with a change and were not without it, beside those that were put in."""
    put = {name for option in change.values() for name in option.names}
    wrong = [place for place in before.places if isinstance(place.node, ast.Call | ast.BinOp) and place not in change]
    matches = [then.match(place) for place in wrong if not before.match(place)]
    return len({name for match in matches if match for name in match.names} - put)
