"""Searching for the expressions where the first number goes wrong: list candidates, test them, rank what is proved.

A first divergence is wrong although its operands are right. It is proved if failing tests pass once a checkpoint takes
its place; if an operand is wrong in one of these tests, the mistake is in an earlier expression. Two mistakes are two
divergences. Often the second one shows only after the first one is corrected.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import filterfalse, islice

import torch
from torch import Tensor

from whichline.engine.suite import Test
from whichline.locate.candidates import Candidates, list_returned_early, list_swaps, list_upstream
from whichline.locate.causes import find_common_cause, find_shown, is_by_chance
from whichline.locate.checkpoints import list_leaves
from whichline.locate.difference import compare
from whichline.locate.found import Found, Outcome, is_plain, join_patches, judge, list_explained, rank
from whichline.locate.near_misses import MAX_NEAR_MISSES, NearMiss, has_lead, rank_near_misses
from whichline.locate.options import Failed, Options, find_what_is
from whichline.locate.probe import Expression
from whichline.locate.prove import MAX_TRACES, Prover
from whichline.locate.run import Experiment, choose_kinds, name_tensors
from whichline.locate.trace import Trace

# The candidates for each divergence that are tried first, and then, where many checkpoints have one shape.
FIRST_TURN, SECOND_TURN, ALL = (0, 8), (8, None), (0, None)
MAX_PLACES = 3  # expressions that together may explain the tests
LAST_CHECKPOINT = "the answer"  # the names of the outputs begin like this
MIN_NEWLY_RIGHT = 2  # fewer checkpoints may become right by chance
MAX_UNMOVED = 3  # after so many replacements that leave the output as it is, the expression does not matter


@dataclass
class Search:
    """Searches for the expressions whose replacements make failing tests pass."""

    experiment: Experiment  # the tests, the most telling ones first, and the replacements found before
    allows_unknown: bool = False  # whether an operand of a divergence may be unknown, if its own operands are right
    tried: Sequence[Expression] = ()  # divergences that need not be tried again
    is_beside_proved: bool = False  # whether the replacements found before make other tests pass
    traces: Sequence[Trace] = field(init=False, default=())  # of some of the tests, without a replacement
    divergences: Sequence[Expression] = field(init=False, default=())  # in these traces, in the order of computation
    calls: Sequence[Expression] = field(init=False, default=())  # of functions that are wrong inside
    turn: tuple[int, int | None] = field(init=False, default=ALL)  # which candidates for a divergence are tried
    candidates: Candidates = field(init=False, default_factory=lambda: Candidates({}))
    near_misses: list[NearMiss] = field(init=False, default_factory=list)
    answered: Found | None = field(init=False, default=None)  # what a right function returned, for wrong arguments

    @property
    def prover(self) -> Prover:
        return Prover(self.experiment, self.allows_unknown, self.calls)

    def find(self, most: int = MAX_PLACES) -> list[Found]:
        """Find at most this many expressions that explain the most tests most plainly; [] if nothing is proved."""
        self.divergences = self.find_divergences()
        if any(trace.known.steps.is_partial for trace in self.traces):
            self.turn = FIRST_TURN
        self.candidates = Candidates({each: self.find_trace(each) for each in (*self.divergences, *self.calls)})
        best: list[Found] = []
        for found in self._list_explanations(most):
            best = max(best, found, key=rank)
            if self._explains_all(best) and is_plain(best):
                break
        if not best and self.turn == FIRST_TURN and not self.allows_unknown:
            self.turn = SECOND_TURN
            best = next(filter(None, self._list_explanations(most)), [])
        is_last = not self.experiment.patch and not self.allows_unknown
        return best or ([self.answered] if self.answered and is_last else [])

    def _list_explanations(self, most: int) -> Iterator[list[Found]]:
        """Yield explanations of the tests, the quick ones first; the slow ones are tried only if those fall short."""
        complete, incomplete = self._try_all(self.divergences)
        is_first = not self.experiment.patch and not self.allows_unknown and bool(self.divergences)
        if complete and incomplete and incomplete.difference.is_simple:
            upstream = list_upstream(complete.trace, complete.place)
            complete = replace(complete, part=incomplete if incomplete.place in upstream else None)
        is_clean = complete is not None and complete.is_clean
        is_sure = complete is not None and is_clean and complete.difference.is_simple
        if complete and is_first and not is_sure:  # two earlier checkpoints may explain as much
            yield self._add_rest(incomplete, most) if incomplete and incomplete.difference.is_simple else []
            together = self._find_together([each for each in rank_near_misses(self.near_misses) if each.newly_right], 2)
            is_inside = any(each.place.node in ast.walk(together[-1].place.node) for each in together[:-1])
            is_same = complete.place in [each.place for each in together]
            yield [] if is_inside or is_same or (is_clean and not is_plain(together)) else together
        yield [complete] if complete else []
        if is_first or (self.is_beside_proved and not complete):
            yield self._find_common_cause([complete.place] if complete else self.divergences, not is_clean)
        if incomplete and (not complete or (incomplete.difference.is_simple and is_sure)):
            yield self._add_rest(incomplete, most)
        if complete:
            return
        if incomplete and (incomplete.difference.is_simple or self._explains_half(incomplete)):
            yield [incomplete]
            return
        if has_lead(self.near_misses):
            yield self._find_together(rank_near_misses(self.near_misses), most)
        if is_first:
            yield self._find_with_unknown_operands(most)
        if not self.allows_unknown:
            self.near_misses = [*self._list_swaps(), *self.near_misses]
            near_misses = rank_near_misses(self.near_misses)  # before those of calls are added
            yield (call := self._find_call())
            if call and self.turn != ALL:
                return  # of many checkpoints of one shape, two make most tests pass
            yield self._find_together(near_misses, most)

    def _add_rest(self, found: Found, most: int) -> list[Found]:
        """Add what explains the tests that one replacement leaves; [] if there is nothing."""
        if most == 1:
            return []
        others = [test for test in self.experiment.failing if test.name not in found.explains]
        if not (rest := [test for test in others if not self.experiment.passes(test, found.patch)]):
            return self._find_hidden(found, others)
        more = Search(self.experiment.add(found.patch, rest), is_beside_proved=True).find(most - 1)
        return self.prover.leave_out_needless([found, *more]) if more else []

    def _find_hidden(self, found: Found, hidden: Sequence[Test]) -> list[Found]:
        """Find an earlier mistake in tests that pass with a replacement although an operand of it is wrong there.

        In the tests that it explains, this operand is right, and equals the checkpoint that belongs there.
        """
        place, explained = next(iter(found.patch)), [*self.prover.restrict(found).failing[:1]]
        if not hidden or not explained:
            return []
        trace, right = self.experiment.run(hidden[0]), self.experiment.run(explained[0])
        for operand in trace.list_operands(place) if place in trace.values else ():
            if trace.is_right(operand) or not (wanted := find_what_is(right, operand)):
                continue
            patch = {trace.find_origin(operand): wanted}
            proved = Prover(self.experiment.only(hidden).add(patch)).prove(found.patch, trace)
            if proved and len(proved.explains) == len(hidden):
                first = Found(patch, trace, compare(trace, patch), proved.explains)
                first = self.prover.show_cause(first, [found])
                if first.patch is not patch:  # otherwise the code may only compute the same in another way
                    return [first, found]
        return []

    def _explains_all(self, found: Sequence[Found]) -> bool:
        return len(list_explained(found)) == len(self.experiment.failing)

    def _explains_half(self, found: Found) -> bool:
        return 2 * len(found.explains) >= len(self.experiment.failing)

    def find_divergences(self) -> list[Expression]:
        """Run some of the tests and list their first divergences in the order in which they are computed.

        Tests without gradients come first: they run many times, and take half as long.
        """
        tests = choose_kinds(self.experiment.failing, MAX_TRACES)
        traces = [trace for trace in map(self.experiment.run, tests) if trace.steps and trace.places]
        self.traces = sorted(traces, key=lambda trace: bool(list_leaves(trace.given)))
        return self._list_divergences() if self.traces else []

    def _list_divergences(self) -> list[Expression]:
        """List the first divergences in the order in which they are computed, tensors made of numbers alone last."""
        runner, put = self.experiment.runner, self.experiment.patch
        places = dict.fromkeys(place for trace in self.traces for place in trace.places if place not in put)
        new = [place for place in places if place not in self.tried and not runner.is_answered(place)]
        new = [place for place in new if not runner.is_connecting(place.file)]
        divergences = [place for place in new if self._is_first_divergence(place)]
        if not any(isinstance(self.find_trace(place).value(place)[0], Tensor) for place in divergences):
            divergences += [place for trace in self.traces[:1] for place in list_returned_early(trace)]
        self.calls = [place for place in new if place not in divergences and self._is_call(place)]
        return sorted(divergences, key=self._rank)

    def _rank(self, place: Expression) -> tuple[bool, bool, bool]:
        """Put what wrappers do last, and tensors made of numbers alone; also numbers that a loop counts."""
        trace = self.find_trace(place)
        are_numbers = all(map(trace.is_number, (place, *trace.list_operands(place))))
        is_wrapper = (place.file, place.function) in trace.wrappers
        is_moved = isinstance(getattr(place.node, "op", None), ast.Add | ast.Sub) and len(set(trace.values[place])) > 1
        may_count = are_numbers and (trace.known.steps.is_partial or is_moved)
        return is_wrapper, trace.is_standalone(place), may_count

    def _is_first_divergence(self, place: Expression) -> bool:
        """Tell whether an expression is a first divergence in some trace; in others it may be right by chance."""
        runs = (trace for trace in self.traces if place in trace.values)
        return any(trace.is_first_divergence(place, self.allows_unknown) for trace in runs)

    def _is_call(self, place: Expression) -> bool:
        """Tell whether an expression calls a function that is wrong inside, and in which nothing is replaced yet."""
        if place.unpacks_arguments:
            return False  # a wrapper, which stands in no formula
        put = self.experiment.patch.keys()
        runs = (trace for trace in self.traces if place in trace.values)
        return any(trace.is_called_rightly(place) and not put & trace.inside[place] for trace in runs)

    def find_trace(self, place: Expression) -> Trace:
        """Find a trace in which an expression is a first divergence, or at least computed."""
        runs = [trace for trace in self.traces if place in trace.values]
        return next((trace for trace in runs if trace.is_first_divergence(place, self.allows_unknown)), runs[0])

    def _try_all(self, divergences: Sequence[Expression]) -> tuple[Found | None, Found | None]:
        """Find the first replacement that explains all tests, and the best of those that explain some.

        A tensor made of numbers alone is preferred to a difference that is not simple.
        """
        complete: Found | None = None
        incomplete: list[Found] = []
        for divergence in divergences:
            is_standalone = self.find_trace(divergence).is_standalone(divergence)
            if complete and not (is_standalone and complete.trace.is_before(divergence, complete.place)):
                continue
            for found in self._try_replacements(divergence):
                if not self._explains_all([found]):
                    incomplete = max(incomplete, [found], key=lambda found: (bool(found), is_plain(found), rank(found)))
                elif found.is_answered:
                    self.answered = self.answered or found
                elif is_standalone or (found.difference.is_simple and len(found.patch) == 1):
                    return self._find_table(found) or found, self._refine_first(incomplete)
                else:
                    complete = complete or found
            if has_lead(self.near_misses):
                break
        return complete, self._refine_first(incomplete)

    def _refine_first(self, incomplete: Sequence[Found]) -> Found | None:
        found = next(map(self.prover.refine, incomplete), None)
        if found and found.is_answered:
            self.answered = self.answered or (found if self._explains_half(found) else None)
            return None
        return found

    def _find_table(self, found: Found) -> Found | None:
        """Find a table made of numbers alone, from which a value is computed, whose replacement explains as much."""
        made = [each for each in list_upstream(found.trace, found.place) if found.trace.is_constructor(each)]
        made = [each for each in made if found.trace.values[each][0].dtype != torch.bool]
        tried = (each for place in made if place in self.divergences for each in self._try_replacements(place))
        return next((each for each in tried if self._explains_all([each]) and each.difference.is_simple), None)

    def _try_replacements(self, divergence: Expression) -> Iterator[Found]:
        """Try the candidates for a divergence, yield the proved ones, and note the near misses."""
        failed, unmoved = Failed(trace := self.find_trace(divergence)), 0
        is_evidence = not trace.is_answered(divergence)
        for change in filterfalse(failed.has, islice(self.candidates.list(divergence), *self.turn)):
            if self.experiment.runner.is_spent or unmoved == MAX_UNMOVED:
                return
            judged, then = self._judge(divergence, change)
            if then.passed:
                if found := self.prover.prove(change, judged):
                    found = self.prover.refine(found) if self._explains_all([found]) else found
                    yield replace(found, is_clean=then.is_clean)
                continue
            failed.add(change, then.raised)
            if not then.moved:
                unmoved += 1
            elif not then.raised and (divergence not in change or is_evidence or compare(trace, change).is_needless):
                has_layout = change[divergence].axes is not None if divergence in change else True
                if has_layout or then.newly_right >= MIN_NEWLY_RIGHT:  # another shape may fit by chance
                    self.near_misses.append(NearMiss(then.newly_right, change, trace))

    def _list_swaps(self) -> Iterator[NearMiss]:
        """List the exchanges of two parts of one value, such as keys and values, that make something right."""
        for trace in self.traces:
            for change in list_swaps(trace):
                key = place, _ = next(iter(change)), frozenset(change.items())
                then = self.experiment.see(trace.test, change, key, partial(judge, trace, place, change))
                if then.newly_right and not then.raised:
                    yield NearMiss(then.newly_right, change, trace)

    def _judge(self, divergence: Expression, change: Options) -> tuple[Trace, Outcome]:
        """Judge a replacement in a test, and in another one if this one does not show all.

        With two mistakes the output may stay as it is, or the second one comes later; another test may not run it.
        """
        first, key = self.find_trace(divergence), (divergence, frozenset(change.items()))
        then = self.experiment.see(first.test, change, key, partial(judge, first, divergence, change))
        if then.passed or then.raised or (then.moved and not then.newly_right):
            return first, then
        others = [each for each in self.traces if each is not first and divergence in each.values]
        others = [each for each in others if each.is_first_divergence(divergence, self.allows_unknown)]
        if then.moved:
            others = [each for each in others if name_tensors(each.test) != name_tensors(first.test)]
        if not others:
            return first, then
        its = self.experiment.see(others[0].test, change, key, partial(judge, others[0], divergence, change))
        return (others[0], its) if its.passed or not then.moved else (first, then)

    def _find_common_cause(self, places: Sequence[Expression], skipped: bool) -> list[Found]:
        divergences = [(self.find_trace(each), each) for each in places]
        if not (cause := find_common_cause(self.experiment, divergences, skipped)):
            return []
        (trace, patch), everything = cause, tuple(test.name for test in self.experiment.failing)
        shown = find_shown(trace, *next(iter(patch.items()))) if len(patch) == 1 else ()
        return [Found(patch, trace, compare(trace, patch), everything, shown=shown)]

    def _find_call(self) -> list[Found]:
        """Find the smallest call of a function that is wrong inside, where no expression of it is proved."""
        complete, incomplete = self._try_all(self.calls)
        if complete:
            return [complete]
        is_enough = incomplete and self._explains_half(incomplete) and self.experiment.all_pass(incomplete.patch)
        return [incomplete] if incomplete and is_enough else []

    def _find_with_unknown_operands(self, most: int) -> list[Found]:
        """Find a divergence with an unknown operand whose own operands are right."""
        found = Search(self.experiment, allows_unknown=True, tried=self.divergences).find(most=1)
        if not is_plain(found):
            return []
        return self._add_rest(found[0], most) if found and not self._explains_all(found) else found

    def _find_together(self, near_misses: Sequence[NearMiss], most: int) -> list[Found]:
        """Find replacements that only together make the tests pass, two before three.

        The right output in the last place makes any test pass, so this alone does not prove the first replacement. It
        must also make a later checkpoint right, or differ from its checkpoint in a simple manner.
        """
        best: list[Found] = []
        if not any(each.newly_right for each in near_misses):
            most = min(most, 2)  # without a lead, to try three takes too long
        for max_later_places in range(1, most):
            for newly_right, patch, trace in near_misses[: MAX_NEAR_MISSES // max_later_places**2]:
                if self.experiment.runner.is_spent:
                    break
                if not (others := Search(self.experiment.add(patch)).find(max_later_places)):
                    continue
                last = others[-1]
                first = self.prover.show_cause(Found(patch, trace, compare(trace, patch), last.explains), others)
                is_swap = len(patch) > 1 and newly_right and last.difference.is_simple
                is_extra = first.difference.is_extra and newly_right < MIN_NEWLY_RIGHT and not is_swap
                if is_extra or not (newly_right or first.difference.is_simple):
                    continue
                beside = self.prover.restrict(last).add(join_patches(others))
                if is_by_chance(beside, trace, patch):
                    continue
                is_output = last.option.names[0].startswith(LAST_CHECKPOINT)
                if is_output and not last.difference.is_simple and newly_right < MIN_NEWLY_RIGHT:
                    continue  # with the right output in the last place any test passes
                if self._explains_all([last]):
                    return self.prover.leave_out_needless([first, *others])
                best = max(best, [first, *others], key=lambda found: len(found[-1].explains) if found else 0)
        return best if best and self._explains_half(best[-1]) else []

    def find_lead(self) -> Found | None:
        """Return the near miss that makes the most checkpoints right, if it differs from its checkpoint simply."""
        leads = [each for each in rank_near_misses(self.near_misses) if each.newly_right >= MIN_NEWLY_RIGHT]
        lead = next((each for each in leads if each.difference.is_simple), None)
        return Found(lead.patch, lead.trace, lead.difference, ()) if lead else None
