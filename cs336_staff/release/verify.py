"""Prove that the suites are good enough to ship: cases and steps are right, and right programs pass in every style."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import torch

from cs336_kit.engine.case import case_names, load_case
from cs336_kit.engine.compare import same
from cs336_kit.engine.result import Result
from cs336_kit.engine.room import load_room
from cs336_kit.engine.suite import Suite
from cs336_kit.way.steps import Follow, take_steps
from cs336_staff.authoring.cases import CaseSpec
from cs336_staff.authoring.programs import RIGHT_STYLES
from cs336_staff.authoring.room import Adapter, load_rooms
from cs336_staff.authoring.stored_cases import check_fixtures, public_seed
from cs336_staff.grading.suite import load_both_suites
from cs336_staff.hidden.release import load_release
from cs336_staff.release.stages import Stage

EXACT = 1e-12  # of the largest number: both are computed in float64


@dataclass(frozen=True)
class StoredCases:
    """The stored cases of one suite: their folder, and what they are made from."""

    suite: str
    folder: Path
    specs: Sequence[CaseSpec]
    seed_of: Callable[[str], int]

    def check(self, only: Collection[str] = ()) -> list[str]:
        """Recompute them; say what is not what the references give, one line each."""
        return list(check_fixtures(self.folder, self.specs, self.seed_of, only))


def stored_cases(root: Path) -> tuple[StoredCases, StoredCases]:
    """The public and the hidden ones."""
    release, rooms = load_release(), load_rooms().values()
    return (
        StoredCases("public", root / "fixtures", [spec for room in rooms for spec in room.public], public_seed),
        StoredCases("hidden", release.cases, [spec for room in rooms for spec in room.hidden], release.seed),
    )


def both_suites(root: Path, problem: str | None = None) -> Suite:
    """The public and the hidden suite, or a problem of them, to be run in this process on adapters that staff wrote."""
    suite = replace(load_both_suites(root), remote=False)
    if problem is None:
        return suite
    tests = [test for test in suite.tests if test.problem == problem]
    return replace(suite, problems={problem: suite.problems[problem]}, tests=tests)


def run_suite(suite: Suite, adapters: Mapping[str, Adapter]) -> list[Result]:
    """The results of a submission that has these adapters, which are every `run_*` function."""
    suite.calls.adapters = SimpleNamespace(**adapters)
    torch.manual_seed(0)  # for those that draw random numbers, by mistake
    return [suite.run(test) for test in suite.tests]


def verify_right_styles(suite: Suite, stage: Stage) -> None:
    """Each style of right implementation must pass every test."""
    stage.check(partial(check_right_style, suite), [*RIGHT_STYLES])


def check_right_style(suite: Suite, style: str) -> Iterator[str]:
    """A style of right implementation must pass every test."""
    for result in run_suite(suite, RIGHT_STYLES[style]):
        if not result.passed:
            yield f"{style} is right and fails {result.test}: {result.headline}"


def verify_steps(root: Path, problems: Collection[str], stage: Stage) -> None:
    """The last step of each problem must be the answer that is stored for its public cases."""
    names = case_names(root / "fixtures", "**/*")
    steps = {adapter: follow for problem in problems for adapter, follow in load_room(problem).steps.items()}
    stage.check(partial(check_steps, root / "fixtures", steps), names)


def check_steps(fixtures: Path, steps: Mapping[str, Follow], name: str) -> Iterator[str]:
    """The last step on a stored case must be the stored answer, where its problem has steps."""
    case = load_case(fixtures, name)
    if case.call in steps and "answer" in case.expected:
        *_, last = take_steps(steps[case.call], case.inputs).values()
        if not same(last.value.tensor, case.expected["answer"], within=EXACT).all():
            yield f"the steps of {case.call} end in another answer than {name} stores"
