"""Locating wrong numbers call by call, with a search of its own in the body of each wrong call.

If a function that does the work of another adapter returns wrong numbers, it is searched on the arguments that it got.
In the caller's body, the reference then stands in for this function, as for the right ones: what is still wrong is
wrong in this body.
"""

import ast
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from whichline.engine.case import Case
from whichline.engine.compare import WrongAnswer, same
from whichline.engine.result import Check
from whichline.engine.suite import Suite, Test
from whichline.locate.calls import judge_calls
from whichline.locate.causes import is_by_chance
from whichline.locate.found import Found, is_plain, join_patches, list_explained, place_in
from whichline.locate.run import Experiment, Runner, choose_kinds, order_by_generality
from whichline.locate.search import MAX_PLACES, Search
from whichline.locate.trace import Trace
from whichline.locate.values import HALF

LOOKED_AT = (Check.ANSWER, Check.OUTPUT)
MOST_CALLS = 6  # wrong calls of one function that are searched
COMPARED = 3  # tests that show whether stand-ins change the outputs
FEW = 8  # tests that are searched first


class Located(NamedTuple):
    """What explains failing tests."""

    found: list[Found]
    right: set[str]  # the adapters whose functions are right in every call
    lead: Found | None = None  # where nothing is found: what may be the first of two mistakes


def locate(runner: Runner, failing: Sequence[Test], most: int = MAX_PLACES) -> Located:
    """Find the places that make failing tests pass: those in wrong calls of other adapters' functions, and the rest.

    At most `most` places are in one body. The search begins with a few different tests. It ends there if the result is
    plain and makes all failing tests pass, or if the budget is spent.
    """
    adapters = runner.suite.list_needed(failing[0].problem)
    pairs = {key: [each for each in pairs if each.adapter in adapters] for key, pairs in runner.pairs.items()}
    runner = replace(runner, pairs={key: each for key, each in pairs.items() if each}, lent=(), runs=0, looks=0)
    few = choose_kinds(failing, FEW)
    first = found, right, lead = _locate(runner, adapters, few, most)
    if len(few) == len(failing):
        return first
    patch, plain = join_patches(found), replace(runner, lent=())
    passing = [test for test in failing if plain.passes(test, patch)] if found else []
    if found and is_plain(found) and len(passing) == len(failing):
        return first
    if not runner.is_spent:
        runner.lent = ()
        more = _locate(runner, adapters, failing, most)
        is_better = _rank(more.found, list_explained(more.found)) >= _rank(found, passing)
        if (more.found and is_better) or not (runner.is_spent or len(passing) == len(failing)):
            return more
    if any(is_by_chance(Experiment(plain, passing), each.trace, each.patch) for each in found):
        return Located([], right)
    simple = next((each for each in found if each.difference.is_simple), None)
    if len(found) == 1 or len(passing) == len(failing) or (simple and 2 * len(passing) >= len(failing)):
        return Located(found, right, lead)
    return Located([], right, lead or simple)


def _rank(found: Sequence[Found], passing: Collection[object]) -> tuple[int, int]:
    return len(passing), sum(each.difference.is_simple for each in found)


def _locate(runner: Runner, adapters: Mapping[str, str], failing: Sequence[Test], most: int) -> Located:
    found, right = list[Found](), set[str]()
    if runner.pairs:
        calls = judge_calls(runner, failing)
        for adapter, cases in reversed(calls.wrong.items()):
            wrong = make_tests(runner.suite, adapters[adapter], cases)
            if wrong and all(adapter != each.option.adapter for each in found):
                found += [place_in(each, adapter) for each in locate(runner, wrong)[0]]
        mended = {option.adapter for each in found for option in each.patch.values()}
        runner.lent = {*calls.right, *mended}
        if _is_kept(runner, failing, mended):
            right = calls.right
        runner.lent = {*right, *mended}
    partial = {pair.adapter for pairs in runner.pairs.values() for pair in pairs if pair.part is not None}
    mends = join_patches(each for each in found if each.option.adapter in partial)  # for which no reference stands in
    experiment = Experiment(runner, failing, mends)
    left = [test for test in failing if not experiment.run(test).passed] if found else failing
    search = Search(experiment.only(left))
    own = search.find(most) if left else []
    runner.lent = right
    found = [each for each in found if _is_computed(runner, failing, each)]
    together = _leave_out_needless(runner, failing, [*found, *own]) if found and own else [*found, *own]
    return Located(together, right, None if together else search.find_lead())


def _is_computed(runner: Runner, failing: Sequence[Test], found: Found) -> bool:
    """Tell whether a failing test computes a place; the test of an inner call may run code that no test runs."""
    return any(next(iter(found.patch)) in runner.look(test).values for test in failing)


def _leave_out_needless(runner: Runner, failing: Sequence[Test], found: list[Found]) -> list[Found]:
    """Leave out the places without which the same tests pass: a wrong call may not matter.

    A function that passes its own tests is right for the arguments that matter, though a caller may pass it others.
    """
    passing = [test for test in failing if runner.passes(test, join_patches(found))]
    for needless in [each for each in found if each.option.adapter]:
        fewer = [each for each in found if each is not needless]
        runs = [runner.run(test, join_patches(fewer)) for test in passing] if fewer else []
        if not runs or not all(then.passed for then in runs):
            continue
        if passes_own(runner, needless.option.adapter) or all(is_explained(then, fewer) for then in runs):
            found = fewer
    return found


def passes_own(runner: Runner, adapter: str) -> bool:
    """Tell whether an adapter passes all tests of its own: then it got arguments for which it need not be right."""
    own = [test for test in runner.suite.tests if not test.memory and adapter in (case.call for case in test.cases())]
    return bool(own) and all(map(runner.passes_as_is, own))


def is_explained(then: Trace, found: Sequence[Found]) -> bool:
    """Tell whether the operands of all replaced expressions are right; in inner calls, they were checked before."""
    own = [each.place for each in found if not each.option.adapter and each.place in then.values]
    return all(then.has_right_operands(place, True, not isinstance(place.node, ast.Call), True) for place in own)


def make_tests(suite: Suite, problem: str, cases: Sequence[Case]) -> list[Test]:
    """Make tests from the calls of an adapter's function, and keep a few that fail with wrong numbers."""
    tests = [suite.make_test(f"{case.name}, call {number}", problem, case) for number, case in enumerate(cases)]
    return [test for test in order_by_generality(tests)[:MOST_CALLS] if is_wrong_number(suite, test)]


def _is_kept(runner: Runner, failing: Sequence[Test], mended: set[str]) -> bool:
    """Tell whether the outputs stay the same when references stand in for the functions that are right."""
    plain = replace(runner, lent=mended)
    return all(_is_alike(plain.look(test), runner.look(test)) for test in failing[:COMPARED])


def _is_alike(one: Trace, other: Trace) -> bool:
    if not isinstance(one.came, Tensor) or not isinstance(other.came, Tensor):
        return type(one.error) is type(other.error)
    return one.came.shape == other.came.shape and bool(same(other.came, one.came).all())


def is_wrong_number(suite: Suite, test: Test) -> bool:
    """Tell whether a test fails because numbers are wrong in the first three digits; not in half precision."""
    error = suite.ending(test) if not test.memory else None
    if not isinstance(error, WrongAnswer) or error.check not in LOOKED_AT or not isinstance(error.answer, Tensor):
        return False
    if not (cases := test.cases()) or error.answer.dtype in HALF:
        return False
    answer, right = error.answer.detach().double(), cases[0].expected[error.what]
    return answer.shape != right.shape or not bool(same(answer, right).all())
