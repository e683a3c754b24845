"""Prove that the suites are good enough to ship: right styles pass, and every known misconception is caught."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import torch

from cs336_kit.engine.case import Case, case_names, load_case
from cs336_kit.engine.result import Result
from cs336_kit.engine.room import load_room
from cs336_kit.engine.suite import Suite
from cs336_staff.authoring.cases import CaseSpec
from cs336_staff.authoring.programs import CATALOGUE, RIGHT_STYLES, expected_findings, wrong_submission
from cs336_staff.authoring.room import Adapter, load_rooms
from cs336_staff.authoring.stored_cases import check_fixtures, public_seed
from cs336_staff.grading.suite import load_both_suites
from cs336_staff.hidden.release import load_release
from cs336_staff.release.stages import Stage


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


def run_suite(suite: Suite, adapters: Mapping[str, Adapter], until_first_failure: bool = False) -> list[Result]:
    """The results of a submission that has these adapters.

    Args:
        suite: the tests.
        adapters: every `run_*` function.
        until_first_failure: whether to stop there.
    """
    suite.calls.adapters = SimpleNamespace(**adapters)
    torch.manual_seed(0)  # for those that draw random numbers, by mistake
    results = []
    for test in suite.tests:
        results.append(suite.run(test))
        if until_first_failure and not results[-1].passed:
            break
    return results


def verify_right_styles(suite: Suite, stage: Stage) -> None:
    """Each style of right implementation must pass every test."""
    stage.check(partial(check_right_style, suite), [*RIGHT_STYLES])


def check_right_style(suite: Suite, style: str) -> Iterator[str]:
    """A style of right implementation must pass every test."""
    for result in run_suite(suite, RIGHT_STYLES[style]):
        if not result.passed:
            yield f"{style} is right and fails {result.test}: {result.headline}"


def verify_misconceptions(suite: Suite, stage: Stage) -> None:
    """Each misconception in the suite's problems must fail some test of its own problem, in either suite."""
    ids = [id for id, entry in CATALOGUE.items() if entry.problem in suite.problems]
    stage.check(partial(check_caught, suite), ids, chunk=4)


def check_caught(suite: Suite, id: str) -> Iterator[str]:
    """A misconception must fail a public test of its own problem, and a hidden one."""
    for name, hidden in (("public", False), ("hidden", True)):
        tests = [test for test in suite.tests if (test.problem, test.hidden) == (CATALOGUE[id].problem, hidden)]
        if run_suite(replace(suite, tests=tests), wrong_submission(id), until_first_failure=True)[-1].passed:
            yield f"{id} is not caught by the {name} suite"


def verify_examination(root: Path, problems: Collection[str], stage: Stage) -> None:
    """Examine programs: a misconception must give what `findings.toml` says, and a right style nothing."""
    right, expected = dict[str, list[str]].fromkeys(RIGHT_STYLES, []), expected_findings()
    programs = [
        (problem, adapter, *program)
        for problem in problems
        for adapter in load_room(problem).examinations
        for program in (right | expected.get(adapter, {})).items()
    ]
    cases = [load_case(root / "fixtures", name) for name in case_names(root / "fixtures", "**/*")]
    stage.check(partial(check_findings, cases), programs, chunk=8)


def check_findings(cases: Sequence[Case], program: tuple[str, str, str, list[str]]) -> Iterator[str]:
    """Examine an adapter of a misconception or of a right style, in which these findings are expected.

    Of a misconception of the problem some finding must be able to make a test on these cases fail.
    """
    problem, adapter, id, expected = program
    if id not in RIGHT_STYLES and (id not in CATALOGUE or adapter not in CATALOGUE[id].adapters):
        yield f"findings.toml of {problem}: {adapter} has no misconception {id}"
        return
    adapters = RIGHT_STYLES.get(id) or wrong_submission(id)
    before = torch.random.get_rng_state()
    findings = load_room(problem).examinations[adapter](adapters[adapter])
    if (found := [finding.id for finding in findings]) != expected:
        yield f"{id}, examined by {adapter}, gives {found}, expected {expected}"
    if not torch.equal(before, torch.random.get_rng_state()):
        yield f"{id}, examined by {adapter}, changes the random numbers of whoever asks"
    if findings and id in CATALOGUE and CATALOGUE[id].problem == problem:
        asked = [case for case in cases if case.call in load_rooms()[problem].calls]
        if not any(finding.touches(case) for finding in findings for case in asked):
            yield f"{id}, examined by {adapter}, is found and can make no test fail"
