"""Finding the expressions where the first number goes wrong.

An expression is a root where all that it is made of is right, and it is not. Proved is a root in whose place a step of
the right program makes failing tests pass: in each of them what it is made of is right, else an earlier one is wrong.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from cs336_kit.engine.suite import Test
from cs336_kit.way.difference import Difference, tell_difference
from cs336_kit.way.options import KINDS, Option, choose_value, list_options
from cs336_kit.way.probe import Place
from cs336_kit.way.run import Patch, Runner
from cs336_kit.way.trace import Trace
from cs336_kit.way.values import as_value

TRACES = 3  # tests that are held against steps at once
ROOTS, OPTIONS = 6, 12  # that are tried for the first of two places
ASKED = 2  # tests of which one has to pass with a step before all are run
NEAREST = 8  # steps that may be missing before an expression


@dataclass(frozen=True)
class Found:
    """A place where a right value was proved.

    Args:
        place: the expression.
        option: what was put there.
        trace: a run without it.
        difference: how the expression differs from that.
        explains: the failing tests that pass with it, and with what was found before it.
        likewise: other places that are wrong for the same reason, and what was put there, too.
    """

    place: Place
    option: Option
    trace: Trace
    difference: Difference
    explains: tuple[str, ...]
    likewise: Patch = field(default_factory=dict)


@dataclass
class Search:
    """Looks for the places that make some failing tests pass.

    Args:
        runner: runs them.
        failing: the tests, those first that tell most.
        patch: what has been found before.
        asked: tests of which one has to pass with a step before all are run.
        is_loose: whether a root may be made of what is not a step, but made of right things.
    """

    runner: Runner
    failing: Sequence[Test]
    patch: Patch
    asked: int = ASKED
    is_loose: bool = False

    def find(self, most: int = 2) -> list[Found]:
        """Find the places, at most so many, that explain the tests; none if nothing is proved."""
        self.traces = [trace for trace in map(self._trace, self._choose()) if trace.steps and trace.places]
        if not self.traces:
            return []
        whole: Found | None = None
        best: Found | None = None
        for place in self._roots():
            for option in self._options(place):
                if (found := self._prove(place, option)) is None:
                    continue
                found = self._narrow(found)._point(found)
                if len(found.explains) < len(self.failing):
                    best = max((each for each in (best, found) if each), key=_weigh)
                elif found.difference.is_simple:
                    return [found]
                else:
                    whole = whole or found
            if whole:
                break
        if best and most > 1 and not (whole and not best.difference.is_simple):
            rest = [test for test in self.failing if test.name not in best.explains]
            if more := Search(self.runner, rest, {**self.patch, best.place: best.option}).find(most - 1):
                return [best, *more]
        if whole or best:
            return [each for each in (whole or best,) if each]
        if most < 2 or self.is_loose or self.asked != ASKED:
            return []
        roots = self._roots()
        if found := self._find_instead(roots) or self._find_group(roots):
            return [found]
        loose = replace(self, is_loose=True).find(most=1)
        if loose and loose[0].difference.is_simple and len(loose[0].explains) == len(self.failing):
            return loose
        return self._find_pair() or replace(self, asked=len(self.failing)).find(most)

    def _narrow(self, found: Found) -> "Search":
        """The same search for the tests alone that something explains."""
        tests = [test for test in self.failing if test.name in found.explains]
        narrow = replace(self, failing=tests)
        narrow.traces = self.traces
        return narrow

    # Roots.

    def _choose(self) -> list[Test]:
        """Tests of different kinds, and then others."""
        kinds: dict[str, Test] = {}
        for test in self.failing:
            kinds.setdefault(test.function, test)
        return [*kinds.values(), *(test for test in self.failing if test not in kinds.values())][:TRACES]

    def _trace(self, test: Test) -> Trace:
        return self.runner.run(test, self.patch)

    def _roots(self) -> list[Place]:
        """The roots in the order in which they are computed; tensors made of nothing but numbers come last."""
        places = dict.fromkeys(place for trace in self.traces for place in trace.places if place not in self.patch)
        roots = [place for place in places if self._is_root(place)]
        if not any(isinstance(self._of(place).value(place)[0], Tensor) for place in roots):
            roots += [place for trace in self.traces[:1] for place in _find_early_return(trace)]
        return sorted(roots, key=lambda place: self._of(place).is_maker(place))

    def _is_root(self, place: Place) -> bool:
        """Tell whether an expression is a root somewhere; elsewhere it may be right by chance."""
        return any(place in trace.values and trace.is_root(place, self.is_loose) for trace in self.traces)

    def _of(self, place: Place) -> Trace:
        """A run in which an expression is a root, or at least computed."""
        runs = [trace for trace in self.traces if place in trace.values]
        return next((trace for trace in runs if trace.is_root(place, self.is_loose)), runs[0])

    def _options(self, place: Place, after: int = -1) -> Iterator[Option]:
        for option in list_options(self._of(place), place, after):
            if self.runner.is_spent:
                return
            yield option

    # Proofs.

    def _prove(self, place: Place, option: Option) -> Found | None:
        """Run the tests with a step in this place; None if none of them passes for that reason."""
        patch = {**self.patch, place: option}
        if not any(self.runner.passes(test, patch) for test in self.failing[: self.asked]):
            return None
        passing = [test for test in self.failing if self.runner.passes(test, patch)]
        explained = tuple(test.name for test in passing if self._is_made_of_right(test, place, patch))
        if not explained:
            return None
        trace = self._of(place)
        return Found(place, option, trace, compare_with_option(trace, place, option), explained)

    def _is_made_of_right(self, test: Test, place: Place, patch: Patch) -> bool:
        trace = self.runner.run(test, patch)
        return place in trace.values and trace.is_made_of_right(place, self.is_loose)

    def _point(self, found: Found) -> Found:
        """The place that a tutor would point at."""
        return self._find_missing(self._follow_maker(found))

    def _follow_maker(self, found: Found) -> Found:
        """Of what a constructor begins, `torch.ones(n, n).tril(1)`, the end."""
        trace = found.trace
        while trace.is_maker(found.place):
            around = [each for each in trace.places if found.place in trace.made_of(each) and not trace.is_right(each)]
            options = [option for each in around[:1] for option in self._options(each)]
            proved = [self._prove(around[0], option) for option in options if option.names == found.option.names][:2]
            whole = [each for each in proved if each and len(each.explains) == len(self.failing)]
            if not whole:
                break
            found = whole[0]
        return found

    def _find_missing(self, found: Found) -> Found:
        """The right operand in whose place another step is wanted: then that step is missing, or has another layout."""
        trace = found.trace
        for operand in trace.made_of(found.place):
            for place, option in self._list_missing(trace, operand):
                if self._is_missing(place, option, found):
                    return replace(found, place=place, option=option, difference=_tell_missing(trace, operand, option))
        return found

    def _list_missing(self, trace: Trace, operand: Place, most: int = NEAREST) -> Iterator[tuple[Place, Option]]:
        """The steps that may be wanted where another one is, there or where it was made.

        They are what it would be for the keys, if it is for the queries, or what comes after it, `most` of these.
        """
        match = trace.matches[operand]
        if not match or len(set(match.names)) != 1 or match.names[0] not in trace.steps:
            return
        here = Option(match.names[:1], match.axes[0])
        options = [each for each in self._options(operand) if each.axes in (None, here.axes) or not here.axes]
        options = [each for each in options if trace.steps[each.names[0]].ask]  # else nobody has to take that way
        later = [
            each
            for each in options
            if each.axes == here.axes and self._order(operand, each) >= self._order(operand, here)
        ]
        alike = [each for each in options if KINDS.sub("*", each.names[0]) == KINDS.sub("*", here.names[0])]
        nouns = set(KINDS.findall(here.names[0]))
        later.sort(key=lambda each: set(KINDS.findall(each.names[0])) != nouns)
        for option in dict.fromkeys((*alike, *later[:most])):
            yield from ((place, option) for place in dict.fromkeys((trace.only_origin(operand), operand)))

    def _is_missing(self, place: Place, option: Option, found: Found) -> bool:
        """Tell whether a step in the place of a right operand makes the tests pass, by making right what was found."""
        patch = {**self.patch, place: option}
        if not self.runner.passes(self.failing[0], patch):
            return False
        then = self.runner.run(self.failing[0], patch)
        if not (match := then.matches.get(found.place)) or match.names[0] != found.option.names[0]:
            return False
        return all(self.runner.passes(test, patch) and self._is_known(test, place) for test in self.failing)

    def _is_known(self, test: Test, place: Place) -> bool:
        """Tell whether an expression is right in a test."""
        trace = self._trace(test)
        return place in trace.values and trace.is_right(place)

    # Two places.

    def _find_pair(self) -> list[Found]:
        """Two places that only together make a test pass.

        With the first one right, numbers are right again as far as the second one; or both are roots from the start.
        """
        trace, roots = self.traces[0], self._roots()
        wrong = [
            each for each in trace.places if not trace.matches[each] and isinstance(each.node, ast.Call | ast.BinOp)
        ]
        for place in roots[:ROOTS]:
            for option in list(self._options(place))[:OPTIONS]:
                patch = {**self.patch, place: option}
                then = self.runner.run(self.failing[0], patch).matches
                right = [match for each in wrong if each is not place and (match := then.get(each))]
                if any(set(match.names) != set(option.names) for match in right):
                    second = Search(self.runner, self.failing, patch).find(most=1)
                else:
                    second = self._find_beside([root for root in roots if root is not place], patch)
                if second and len(second[0].explains) == len(self.failing):
                    difference = compare_with_option(self._of(place), place, option)
                    return [Found(place, option, self._of(place), difference, second[0].explains), *second]
        return []

    def _find_instead(self, roots: Sequence[Place]) -> Found | None:
        """A right value that is used in several places where another one belongs."""
        operands: dict[Place, Trace] = {}
        todo = [(self._of(root), each) for root in roots[:ROOTS] for each in self._of(root).made_of(root)]
        while todo:
            trace, operand = todo.pop(0)
            if operand not in operands:
                operands[operand] = trace
                todo += [(trace, each) for each in trace.made_of(operand)]
        for operand, trace in operands.items():
            for _, option in self._list_missing(trace, operand, most=0):
                for place in dict.fromkeys((trace.origin(operand), operand)):
                    patch = {**self.patch, place: option}
                    if all(self.runner.passes(test, patch) and self._is_known(test, place) for test in self.failing):
                        explained = tuple(test.name for test in self.failing)
                        return Found(place, option, trace, _tell_missing(trace, operand, option), explained)
        return None

    def _find_group(self, roots: Sequence[Place]) -> Found | None:
        """Roots that are wrong for one reason, in the queries, the keys and the values: the first of them."""
        for first in roots[:ROOTS]:
            beside = [root for root in roots if (root.file, root.function) == (first.file, first.function)]
            for option in list(self._options(first))[:OPTIONS]:
                patch, order = {first: option}, self._order(first, option)
                for place in beside[beside.index(first) + 1 :]:
                    alike = {self._order(place, each): each for each in self._options(place) if each.is_like(option)}
                    if following := [each for each in sorted(alike) if each > order]:
                        order = following[0]
                        patch[place] = alike[order]
                if len(patch) > 1 and all(self.runner.passes(test, {**self.patch, **patch}) for test in self.failing):
                    explained = tuple(test.name for test in self.failing)
                    difference = compare_with_option(self._of(first), first, option)
                    return Found(first, option, self._of(first), difference, explained, patch)
        return None

    def _order(self, place: Place, option: Option) -> int:
        return self._of(place).steps[option.names[0]].order

    def _find_beside(self, roots: Sequence[Place], patch: Patch) -> list[Found]:
        beside = Search(self.runner, self.failing, patch)
        beside.traces = self.traces
        for place in roots[:ROOTS]:
            for option in list(self._options(place))[:NEAREST]:
                if found := beside._prove(place, option):
                    return [found]
        return []


def _weigh(found: Found) -> tuple[bool, int]:
    return found.difference.is_simple, len(found.explains)


def compare_with_option(trace: Trace, place: Place, option: Option) -> Difference:
    """Say how an expression differs from a step, the first time that it does."""
    values = trace.value(place)
    time = min(trace.first_wrong(place), len(values) - 1)
    value = as_value(values[time]).tensor
    step = trace.steps.get(option.names[min(time, len(option.names) - 1)])
    if step is None:
        return Difference("is not what it should be", False)
    right = choose_value(replace(option, is_low=False), trace.steps, time, values[time])
    if not isinstance(right, Tensor) or isinstance(values[time], float | int):
        right = step.value.tensor
    others = {name: each for name, each in trace.known.items() if each is not step.value}
    return tell_difference(value, right.detach(), step.name, others)


def _tell_missing(trace: Trace, operand: Place, option: Option) -> Difference:
    match = trace.matches[operand]
    assert match is not None
    if match.names == option.names:
        return compare_with_option(trace, operand, option)
    return Difference(f"is {match.names[0]}; expected {option.names[0]}", True)


def _find_early_return(trace: Trace) -> list[Place]:
    """The expression that made what comes back, where that is a step before the last one."""
    match = trace.matches[trace.order[-1]]
    if not match or match.names[-1] == list(trace.steps)[-1]:
        return []
    made = [each for each in trace.places if trace.matches[each] == match and not isinstance(each.node, ast.Name)]
    return made[:1]


def order_by_generality(tests: Sequence[Test]) -> list[Test]:
    """Tests that tell most come first: sizes that differ and are not 1; then few arguments; then what is small."""

    def rank(test: Test) -> tuple[int, int, int]:
        for case in test.cases():
            tensors = [x for x in case.inputs.values() if isinstance(x, Tensor)]
            sizes = [size for x in tensors for size in x.shape]
            numbers = [x for x in case.inputs.values() if isinstance(x, int) and not isinstance(x, bool)]
            ones = sum(size <= 1 for size in sizes) + sum(x.shape[-1:] == (2,) for x in tensors)
            alike = len(numbers) - len(set(numbers)) + (len(set(sizes)) < 3)
            return ones + alike, len(tensors), sum(x.numel() for x in tensors)
        return len(tests), 0, 0

    return sorted(tests, key=rank)
