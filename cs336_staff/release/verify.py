"""Prove that the suites are good enough to ship: right styles pass, and every known misconception is caught."""

import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import torch

from cs336_kit.engine.assignment import load_problems
from cs336_kit.engine.result import Result
from cs336_kit.engine.suite import Suite, load_suite
from cs336_kit.examination.problems import EXAMINATIONS
from cs336_staff import authoring
from cs336_staff.authoring.cases.hidden import HIDDEN
from cs336_staff.authoring.cases.public import PUBLIC
from cs336_staff.authoring.cases.spec import CaseSpec
from cs336_staff.authoring.misconceptions import CATALOGUE, check_catalogue
from cs336_staff.authoring.parts import Adapter
from cs336_staff.authoring.right_styles import RIGHT_STYLES
from cs336_staff.authoring.stored_cases import check_fixtures, public_seed
from cs336_staff.hidden.release import FOLDER, left_out_tests, load_graded_problems, load_release
from cs336_staff.release.stages import Stage

EXPECTED = Path(authoring.__file__).with_name("expected_findings.toml")


@dataclass(frozen=True)
class Caught:
    """The verdict of the suites on one misconception.

    Args:
        id: the misconception.
        failed: how many cases of each public test failed.
        hidden: whether the hidden suite catches it too.
    """

    id: str
    failed: Mapping[str, int]
    hidden: bool

    @property
    def complaint(self) -> str:
        """Say what is wrong with that, or ""."""
        if not self.failed:
            return "is not caught by the public suite"
        return "" if self.hidden else "is not caught by the hidden suite"


@dataclass(frozen=True)
class StoredCases:
    """The stored cases of one suite: their folder, and what they are made from."""

    suite: str
    folder: Path
    specs: Sequence[CaseSpec]
    seed_of: Callable[[str], int]

    def check(self) -> list[str]:
        """Recompute them; say what is not what the references give, one line each."""
        return list(check_fixtures(self.folder, self.specs, self.seed_of))


def stored_cases(root: Path) -> tuple[StoredCases, StoredCases]:
    """The public and the hidden ones."""
    return (
        StoredCases("public", root / "fixtures", PUBLIC, public_seed),
        StoredCases("hidden", FOLDER / "fixtures", HIDDEN, load_release().seed),
    )


def both_suites(root: Path) -> Suite:
    """The public and the hidden suite, to be run in this process on adapters that staff wrote."""
    check_catalogue(load_problems(root) | load_problems(root, left_out=True))
    return load_suite(root, [root / "tests", FOLDER], load_graded_problems(root), left_out=left_out_tests(root))


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
    for style, adapters in stage.track([*RIGHT_STYLES.items()]):
        for result in run_suite(suite, adapters):
            if not result.passed:
                stage.error(f"{style} is right and fails {result.test}: {result.headline}")


def verify_misconceptions(suite: Suite, stage: Stage) -> list[Caught]:
    """Each misconception in the suite's problems must fail some test of its own problem, in either suite."""
    found = []
    entries = [(id, entry) for id, entry in CATALOGUE.items() if entry.problem in suite.problems]  # some are left out
    for id, entry in stage.track(entries):
        tests = [test for test in suite.tests if test.problem == entry.problem]
        public, hidden = ([test for test in tests if test.hidden == is_hidden] for is_hidden in (False, True))
        failed = Counter(r.function for r in run_suite(replace(suite, tests=public), submission(id)) if not r.passed)
        stopped = run_suite(replace(suite, tests=hidden), submission(id), until_first_failure=True)
        found.append(Caught(id, failed, hidden=not stopped[-1].passed))
        if complaint := found[-1].complaint:
            stage.error(f"{id} {complaint}")
    return found


def expected_findings() -> dict[str, dict[str, list[str]]]:
    """For each adapter that is examined, the ids of the findings of each misconception in it, in their order."""
    return tomllib.loads(EXPECTED.read_text(encoding="utf-8"))


def verify_examination(stage: Stage) -> None:
    """Examine misconceptions: each must give what `expected_findings.toml` says, and a right style nothing."""
    expected = expected_findings()
    examinations = {adapter: examine for each in EXAMINATIONS.values() for adapter, examine in each.items()}
    for adapter, examine in stage.track([*examinations.items()]):
        for style, adapters in RIGHT_STYLES.items():
            for finding in examine(adapters[adapter]):
                stage.error(f"{style} is right, but is told {finding.id}")
        for id, ids in expected[adapter].items():
            if id not in CATALOGUE or adapter not in CATALOGUE[id].adapters:
                stage.error(f"{EXPECTED.name}: {adapter} has no misconception {id}")
                continue
            found = [finding.id for finding in examine(submission(id)[adapter])]
            if found != ids:
                stage.error(f"{id}, examined by {adapter}, gives {found}, expected {ids}")


def submission(id: str) -> Mapping[str, Adapter]:
    """Adapters that have this misconception and are right otherwise."""
    return {**RIGHT_STYLES["einsum"], **CATALOGUE[id].adapters}
