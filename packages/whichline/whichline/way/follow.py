"""Following the failing tests of a problem to the expressions where the first number goes wrong."""

import ast
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import FunctionType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from whichline.engine.finding import Finding
from whichline.engine.suite import Suite, Test
from whichline.way.calls import judge_calls, pair_functions
from whichline.way.contract import tell_contract
from whichline.way.locate import is_explained, is_wrong_number, locate, make_tests
from whichline.way.observed import Observed
from whichline.way.probe import Place
from whichline.way.reference import Reference
from whichline.way.repeat import tell_unrepeatable
from whichline.way.run import Patch, Runner, order_by_generality
from whichline.way.search import PLACES, Found, join_patches
from whichline.way.telling import count_failing, show_place
from whichline.way.unproved import tell_unproved
from whichline.way.unread import find_unread, list_needed
from whichline.way.values import is_equal

MOST = 2  # places that are told
EXTRA = "Where in the formula is this step?"
NAN = "Which numbers give NaN here: 0 / 0, or −inf − (−inf)? What should come out in their place?"
ASKED = 3  # failing tests whose arguments are looked at


def follow(
    suite: Suite,
    steps: Mapping[str, Reference],
    failing: Sequence[Test],
    passing: Sequence[Test] = (),
    observed: Observed | None = None,
) -> list[Finding]:
    """Find the places in which right values make the failing tests pass, two at most, and breaches of the contract.

    Args:
        suite: the tests, and the student's functions, in this process.
        steps: for each adapter, its reference.
        failing: tests of one problem.
        passing: the others of it.
        observed: the copy of their functions, if there is one.
    """
    runner = Runner(suite, steps, observed or observe(suite))
    if not runner.observed.places:
        return []
    numbers = order_by_generality([test for test in failing if is_wrong_number(suite, test)])
    if found := tell_unrepeatable(runner, failing):
        return [found]
    if numbers and not _is_repeatable(runner, numbers[0]):
        return []
    found, patch = _find_numbers(runner, numbers, failing) if numbers else ([], {})
    if rest := _leave_out(failing, found):
        found += tell_contract(runner, rest, patch, len(failing))
    if wrong := _leave_out([test for test in failing if test in numbers], found):
        others = [*passing, *(test for test in failing if test not in wrong)]
        calls, adapters = judge_calls(runner, wrong[:ASKED]), suite.list_needed(wrong[0].problem)
        runner.lent = calls.right
        inner = (make_tests(suite, adapters[adapter], cases) for adapter, cases in calls.wrong.items())
        begins = next(filter(None, inner), wrong)
        unproved = tell_unproved(runner, wrong, others, begins, bool(found))
        found += [unproved] if unproved else []
    return found


def observe(suite: Suite) -> Observed:
    """A copy of the student's code, for one search."""
    return Observed(suite.calls.adapters, suite.has_written, suite.cell)


def _leave_out(tests: Sequence[Test], found: Sequence[Finding]) -> list[Test]:
    """The tests that no finding is about."""
    told = {name for each in found for name in each.tests}
    return [test for test in tests if test.name not in told]


def _find_numbers(runner: Runner, numbers: Sequence[Test], failing: Sequence[Test]) -> tuple[list[Finding], Patch]:
    """Find the places of wrong numbers, and what was put there."""
    wrong = [test for test in numbers if not _is_rounded(runner, test)]
    if not wrong:
        return [], {}
    if unread := _find_unread(runner, wrong):
        return unread, {}
    runner.pairs = pair_functions(runner, runner.suite.list_needed(wrong[0].problem))
    most = PLACES if 2 * len(wrong) >= len(failing) else 1  # those that raise may tell of another
    found, right = locate(runner, wrong, most)
    if not found or (most == 1 and not all(each.difference.is_simple for each in found)):
        return [], {}
    patch = join_patches(found)
    passing = [test for test in failing if runner.passes(test, patch)]
    trusting = replace(runner, lent=right)
    explained = [test for test in passing if is_explained(trusting.run(test, patch), found)]
    if not explained:
        return _tell_inner(runner, found, wrong), {}
    told = list({each.place: each for each in reversed(found)}.values())[::-1]
    proof = _prove(told, len(explained), len(passing), len(failing))
    return [_tell(each, runner, explained, proof if each is told[:MOST][-1] else "") for each in told[:MOST]], patch


def _tell_inner(runner: Runner, found: Sequence[Found], failing: Sequence[Test]) -> list[Finding]:
    """Tell what makes calls inside right and changes the answers, though the tests still fail."""
    inner = [each for each in found if each.option.adapter]
    patch = join_patches(inner)
    if not any(not is_equal(runner.run(test, {}).came, runner.run(test, patch).came) for test in failing):
        return []
    right = judge_calls(runner, failing, patch).right
    proof = "With this corrected, each call of its function is right; the tests fail for another reason, too."
    return [_tell(each, runner, failing, proof) for each in inner if each.option.adapter in right][:MOST]


def _is_rounded(runner: Runner, test: Test) -> bool:
    """Tell whether a case in float64 is computed in float32: then it is digits that are lost."""
    if test.cases()[0].dtype != torch.float64:
        return False
    # What a constructor makes is loaded with other numbers; a table that stays is read again.
    return any(
        isinstance(each, Tensor) and each.dtype == torch.float32 and not place.function.endswith("__init__")
        for place, objects in runner.run(test, {}).objects.items()
        for each in objects
    )


def _is_repeatable(runner: Runner, test: Test) -> bool:
    """Tell whether the copy gives what the student's code gave; else that has a state, and is not followed."""
    plain, trace = runner.run_plainly(test), runner.run(test, {})
    answers = [getattr(error, "answer", None) for error in (plain, trace.error)]
    return bool(trace.order) and is_equal(*answers)


def _find_unread(runner: Runner, wrong: Sequence[Test]) -> list[Finding]:
    """An argument that decides the right answer, and that the code never reads."""
    for test in wrong[:ASKED]:
        trace = runner.run(test, {})
        call = test.cases()[0].call
        if not trace.steps or call not in runner.follow:
            continue
        needed = list_needed(runner.follow[call], trace.arguments)
        ran = dict.fromkeys((place.file, place.function) for place in trace.order)
        for file, function, argument in find_unread(ran, runner.observed.definitions, sorted(needed)):
            problem = wrong[0].problem
            said = f"Your code never uses `{argument.arg}`, but the right answer depends on it."
            tests = tuple(each.name for each in wrong)
            place = show_place(file, function, argument, runner.suite.root)
            return [Finding(problem, f"{problem}-unread-{argument.arg}", (said,), tests=tests, **place)]
    return []


def _prove(found: Sequence[Found], explained: int, passing: int, failing: int) -> str:
    """Say how many tests pass with right values in all the places; or how many these explain, if others pass, too."""
    if explained < passing:
        these = {1: "This explains", 2: "These two explain"}.get(len(found), "Together these explain")
        return f"{these} {explained} of the {failing} failing tests."
    names = {name for each in found for name in each.option.names}
    if len(found) == 1:
        places = 1 if found[0].shown else len(found[0].patch)
        is_one = len(names) == places == 1 and not found[0].option.is_series and not found[0].shown
        several = {1: "With this corrected", 2: "With both places corrected"}
        right = f"With {min(names)} here" if is_one else several.get(places, "With all of these corrected")
    else:
        more = "".join(f" and line {each.place.line}" for each in found[MOST:])
        are_more = any(len(each.patch) > 1 for each in found)
        right = "With all of these corrected" if are_more else f"With these two{more} corrected"
    return f"{right}, {count_failing(explained, failing, 'passes', 'pass')}."


def _tell(found: Found, runner: Runner, explained: Sequence[Test], proof: str) -> Finding:
    place, step, problem = found.place, found.trace.steps[found.option.names[0]], explained[0].problem
    words = found.difference.words + _tell_not_given(found, runner.observed)
    is_nan = any(isinstance(x, Tensor) and bool(x.isnan().any()) for x in found.trace.values.get(place, ()))
    return Finding(
        problem,
        f"{problem}-" + re.sub(r"\W+", "-", step.name.removeprefix("the ")).strip("-"),
        (words,),
        likewise=() if found.shown else tuple(each.line for each in found.patch if each.line != place.line),
        proof=proof,
        question=EXTRA if found.difference.is_needless else NAN if is_nan else step.ask,
        section=step.section,
        tests=tuple(test.name for test in explained),
        step=step.name,
        **show_place(place.file, place.function, place.node, runner.suite.root),
    )


def _tell_not_given(found: Found, observed: Observed) -> str:
    """Name the parameters that a call leaves at None, where it is not plain what is wrong."""
    call = found.place.node
    if found.difference.is_simple or not isinstance(call, ast.Call):
        return ""
    node = observed.definitions.get(_find_callee(call, found.place, observed))
    if node is None or node.args.vararg:
        return ""
    optional = zip(node.args.args[::-1], node.args.defaults[::-1], strict=False)
    given = {each.arg for each in node.args.args[: len(call.args)]} | {each.arg for each in call.keywords}
    left = [each.arg for each, default in optional if ast.unparse(default) == "None" and each.arg not in given][::-1]
    return f" This call passes nothing for `{left[0]}`." if left else ""


def _find_callee(call: ast.Call, place: Place, observed: Observed) -> tuple[str, str]:
    """The file and the name of the function that a call by a name of the whole file reaches, if it is one."""
    value: Any = SimpleNamespace(**observed.find_namespace(place.file))
    for name in ast.unparse(call.func).split("."):
        value = getattr(value, name, None)
    function = inspect.unwrap(value) if callable(value) else None
    return (function.__code__.co_filename, function.__qualname__) if isinstance(function, FunctionType) else ("", "")
