"""Following the failing tests of a problem to the expressions where the first number goes wrong."""

import ast
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from cs336_kit.engine.assignment import is_students
from cs336_kit.engine.compare import WrongAnswer, same
from cs336_kit.engine.result import Check
from cs336_kit.engine.suite import Suite, Test
from cs336_kit.way.finding import Finding, read_line
from cs336_kit.way.probe import Probes
from cs336_kit.way.run import Runner, Trial, find_functions
from cs336_kit.way.search import PLACES, Found, Search, join_patches, order_by_generality
from cs336_kit.way.steps import Follow
from cs336_kit.way.unread import find_unread, list_needed

HALF = (torch.float16, torch.bfloat16)
MOST = 2  # places that are told
ASKED = 3  # failing tests whose arguments are looked at


def follow(
    suite: Suite, steps: Mapping[str, Follow], failing: Sequence[Test], earlier: Collection[Test] = ()
) -> list[Finding]:
    """Find the places, two at most, in which right values make the failing tests pass.

    Args:
        suite: the tests, and the student's functions, in this process.
        steps: for each adapter, the right program in steps.
        failing: tests of one problem.
        earlier: tests of other problems that pass: what they run is not looked into.
    """
    wrong = order_by_generality([test for test in failing if _is_wrong_number(suite, test)])
    if not wrong:
        return []
    runner = Runner(suite, steps, Probes(cache(lambda file: _is_students(Path(file), suite.root))))
    if not runner.probes.changed:
        return []
    changed = dict(runner.probes.changed)
    with runner.probes.on():
        seen = find_functions(runner, list(earlier))
    runner.probes.leave_out(seen)
    runner.runs = 0
    with runner.probes.on():
        wrong = [test for test in wrong if not _is_rounded(runner, test)]
        if not wrong or not _is_repeatable(runner, wrong[0]):
            return []
        if unread := _find_unread(runner, wrong):
            return unread
        most = PLACES if 2 * len(wrong) >= len(failing) else 1  # those that raise may tell of another
        found = Search(Trial(runner, wrong)).find(most)
    if not found and seen:
        runner.probes.changed = changed
        with runner.probes.on():
            found, most = Search(Trial(runner, wrong)).find(1), 1
    if most == 1 and not all(each.difference.is_simple for each in found):
        return []
    with runner.probes.on():
        patch = join_patches(found)
        explained = sum(runner.passes(test, patch) for test in failing)
    if not explained:
        return []
    told = list({each.place: each for each in reversed(found)}.values())[::-1]
    proof = _prove(told, explained, len(failing))
    says_all = explained == len(failing) and all(each.difference.is_simple for each in found)
    return [_tell(each, runner, proof if each is told[:MOST][-1] else "", says_all) for each in told[:MOST]]


def _is_students(file: Path, root: Path) -> bool:
    return file.is_relative_to(root) and is_students(file.relative_to(root))


def _is_wrong_number(suite: Suite, test: Test) -> bool:
    """Tell whether a test fails by numbers that are wrong to three digits, and not in half precision."""
    error = suite.ending(test) if not test.memory else None
    if not isinstance(error, WrongAnswer) or error.check is not Check.ANSWER or not isinstance(error.answer, Tensor):
        return False
    if not (cases := test.cases()) or error.answer.dtype in HALF:
        return False
    answer, right = error.answer.detach().double(), cases[0].expected["answer"]
    return answer.shape != right.shape or not bool(same(answer, right).all())


def _is_rounded(runner: Runner, test: Test) -> bool:
    """Tell whether a case in float64 is computed in float32: then it is digits that are lost."""
    if test.cases()[0].dtype != torch.float64:
        return False
    runner.run(test, {})
    # What a constructor makes is loaded with other numbers; a table that stays is read again.
    return any(not place.function.endswith("__init__") for place in runner.probes.recorder.narrow)


def _is_repeatable(runner: Runner, test: Test) -> bool:
    """Tell whether the student's numbers are the same in a second run; else they have a state, and are not followed."""
    answers = [
        trace.values[trace.order[-1]][-1] for trace in (runner.run(test, {}), runner.run(test, {})) if trace.order
    ]
    return len(answers) == 2 and bool(same(*answers, within=0.0).all())


def _find_unread(runner: Runner, wrong: Sequence[Test]) -> list[Finding]:
    """An argument that decides the right answer, and that the code never reads."""
    for test in wrong[:ASKED]:
        trace = runner.run(test, {})
        call = test.cases()[0].call
        if not trace.steps or call not in runner.follow:
            continue
        needed = list_needed(runner.follow[call], trace.arguments)
        ran = dict.fromkeys((place.file, place.function) for place in trace.order)
        for file, function, argument in find_unread(ran, runner.probes.definitions, sorted(needed)):
            columns = argument.col_offset, argument.col_offset + len(argument.arg)
            difference = f"Nothing reads `{argument.arg}`, and the right answer depends on it."
            place = _relative(file, runner.suite.root), argument.lineno, function, columns
            return [Finding(*place, read_line(file, argument.lineno), difference)]
    return []


def _prove(found: Sequence[Found], explained: int, failing: int) -> str:
    """Say how many tests pass with right values in all the places."""
    names = {name for each in found for name in each.option.names}
    if len(found) == 1:
        right = f"With {min(names)} here" if len(names) == len(found[0].patch) == 1 else "With this right"
    else:
        more = "".join(f" and line {each.place.line}" for each in found[MOST:])
        right = f"With these two{more} right"
    if explained < failing:
        return f"{right}, {explained} of the {failing} tests that fail {'passes' if explained == 1 else 'pass'}."
    passing = {1: "the test that fails passes", 2: "both tests that fail pass"}
    return f"{right}, {passing.get(failing, f'all {failing} tests that fail pass')}."


def _tell(found: Found, runner: Runner, proof: str, says_all: bool) -> Finding:
    place, step = found.place, found.trace.steps[found.option.names[0]]
    code = read_line(place.file, place.line)
    start = len(code.encode()[: place.node.col_offset].decode())
    is_one_line = place.node.end_lineno == place.line
    end = len(code.encode()[: place.node.end_col_offset].decode()) if is_one_line else len(code)
    return Finding(
        _relative(place.file, runner.suite.root),
        place.line,
        place.function,
        (start, end),
        code,
        found.difference.words + _tell_not_given(found, runner.probes.definitions),
        proof=proof,
        likewise=tuple(each.line for each in found.patch if each.line != place.line),
        question=step.ask,
        section=step.section,
        says_all=says_all,
    )


def _tell_not_given(found: Found, definitions: Mapping[tuple[str, str], ast.FunctionDef]) -> str:
    """Name the parameters that a call leaves at None, where it is not plain what is wrong."""
    call = found.place.node
    if found.difference.is_simple or not isinstance(call, ast.Call):
        return ""
    name = getattr(call.func, "id", getattr(call.func, "attr", ""))
    for (_, function), node in definitions.items():
        if function == name and not node.args.vararg:
            optional = node.args.args[len(node.args.args) - len(node.args.defaults) :]
            given = {each.arg for each in node.args.args[: len(call.args)]} | {each.arg for each in call.keywords}
            if left := [each.arg for each in optional if each.arg not in given]:
                return f" Nothing is given for `{left[0]}`."
    return ""


def _relative(file: str, root: Path) -> str:
    return Path(file).relative_to(root).as_posix() if Path(file).is_relative_to(root) else file
