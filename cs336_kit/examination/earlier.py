"""Problems whose answers are wrong because those of an earlier one are: right multi-head attention on wrong attention.

What an examination would find in them is the mistake of the earlier one, and may not look like it at all.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.assignment import Problem, find_needs
from cs336_kit.engine.case import Case
from cs336_kit.engine.compare import listed, near
from cs336_kit.engine.failure import Stopped
from cs336_kit.engine.result import Result
from cs336_kit.engine.room import Functions, load_room
from cs336_kit.engine.suite import Suite, Test


def say_what_earlier_explains(suite: Suite, problem: str, failing: Iterable[Test], results: Sequence[Result]) -> str:
    """Say which earlier problems are to blame, if right programs on them, as the student has them, give the same.

    Which of them matter is found by putting right programs in the place of the others. Compared is what fails in
    public: the process that examines must not see hidden inputs.

    Args:
        suite: has the student's functions.
        problem: whose tests fail.
        failing: those tests.
        results: from them follows which of the earlier problems may be wrong.
    """
    room, tests = load_room(problem), [test for test in failing if not test.hidden]
    if not room.on_earlier or problem not in suite.problems:  # one call alone is looked into
        return ""
    needs = find_needs(suite.problems, problem)
    ran, wrong = {each.problem for each in results}, {each.problem for each in results if each.is_wrong}
    suspects = [need for need in needs if need in wrong or need not in ran]
    for some in (some for count in range(len(suspects)) for some in combinations(suspects, count + 1)):
        earlier: dict[str, Callable[..., Any]] = {}
        for need in needs:
            innocent = need in suspects and need not in some
            earlier.update(right_programs(suite.problems, need) if innocent else _students(suite, need))
        programs = {adapter: build(earlier) for adapter, build in room.on_earlier.items()}
        compared = set[bool | None]()
        for test in tests:
            compared.add(_fails_alike(suite, programs, test))
            if False in compared:
                break
        if True in compared and False not in compared:
            titles = [f"your {title[0].lower()}{title[1:]}" for title in (suite.problems[need].title for need in some)]
            does = f"{suite.problems[problem].title} does what {listed(titles)} {'does' if len(titles) == 1 else 'do'}"
            return f"{does}: correct that first." if None in compared else f"{does}; nothing else is wrong with it."
    return ""


def right_programs(problems: Mapping[str, Problem], problem: str) -> Functions:
    """Right programs for a problem's adapters: its room's own, or those that it builds on the right earlier ones."""
    return load_room(problem).right or build_on_right(problems, problem)


def build_on_right(problems: Mapping[str, Problem], problem: str) -> Functions:
    """A problem's programs that are built on earlier ones, on right ones; none, if it has no such programs."""
    needs = find_needs(problems, problem)
    earlier = {adapter: run for need in needs for adapter, run in right_programs(problems, need).items()}
    return {adapter: build(earlier) for adapter, build in load_room(problem).on_earlier.items()}


def _students(suite: Suite, problem: str) -> Functions:
    """The student's adapters of a problem, looked up when they are called: some may be missing."""
    students = suite.calls.adapters
    return {adapter: partial(_call, students, adapter) for adapter in load_room(problem).examinations}


def _call(students: Any, adapter: str, *arguments: Any, **inputs: Any) -> Any:
    return getattr(students, adapter)(*arguments, **inputs)


def _fails_alike(suite: Suite, programs: Functions, test: Test) -> bool | None:
    """Tell whether a test fails on these programs as on the student's; None if that cannot be compared."""
    cases = test.cases()
    for case in cases:
        try:
            if not _are_alike(
                _outcome(case, programs[case.call]), _outcome(case, partial(_call, suite.calls, case.call))
            ):
                return False
        except NotImplementedError:  # right programs differ there
            return None
    return suite.fails_on(programs, test) if cases else None


def _outcome(case: Case, run: Callable[..., Any]) -> list[Tensor | None] | str:
    """The answer and the gradients of a call, or the name of the error's type."""
    case = case.copy()
    case.require_gradients()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            answer = list(case.parts(run(**case.inputs)).values())
        if not case.gradients:
            return answer
        leaves = [case.inputs[name] for name in case.gradients]
        return [*answer, *torch.autograd.grad((answer[0] * case.cotangent).sum(), leaves, allow_unused=True)]
    except NotImplementedError:
        raise
    except (Exception, Stopped, SystemExit) as error:
        return getattr(error, "type", type(error).__name__)  # of one in another process


def _are_alike(x: list[Tensor | None] | str, y: list[Tensor | None] | str) -> bool:
    if isinstance(x, str) or isinstance(y, str):
        return x == y
    return all(map(_are_close, x, y))


def _are_close(x: Tensor | None, y: Tensor | None) -> bool:
    if not isinstance(x, Tensor) or not isinstance(y, Tensor):
        return x is y
    return (x.shape, x.dtype) == (y.shape, y.dtype) and near(x.detach(), y.detach())
