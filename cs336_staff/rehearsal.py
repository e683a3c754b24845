"""A suite run in this process on adapters that staff wrote: the very tests and the very diagnosis of the students."""

import contextlib
import io
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from cs336_kit.failure import Failure
from cs336_kit.plugin import Diagnosis
from cs336_staff.misconceptions.parts import Adapter

PUBLIC = Path("tests")
HIDDEN = Path("cs336_staff/hidden")
# What holds adapters: the tests of both suites, and the module itself.
SUITE_MODULES = ("adapters", "tests.test_", "cs336_staff.hidden.test_")


@dataclass(frozen=True)
class Rehearsal:
    """What became of one run.

    Args:
        passed: the ids of the tests that passed.
        failures: the failures of the others by the ids of the tests.
        explained: for each family of cases in which something failed, the ids of the misconceptions that were named.
    """

    passed: tuple[str, ...]
    failures: dict[str, Failure]
    explained: dict[str, list[str]]

    @property
    def named(self) -> set[str]:
        """Every misconception that was named for a family."""
        return {id for ids in self.explained.values() for id in ids}


def rehearse(root: Path, adapters: Mapping[str, Adapter], suite: Path = PUBLIC, *options: str) -> Rehearsal:
    """Run a suite on the given adapters.

    Args:
        root: the folder of the assignment.
        adapters: every `run_*` function.
        suite: the folder of the tests, relative to the root.
        options: more options of pytest.

    Raises:
        RuntimeError: the tests could not be collected.
    """
    listener = _Listener()
    arguments = ["--quiet", "--rootdir", str(root), "-c", str(root / "pyproject.toml")]
    # Without the types of the handout: adapters of staff are not annotated.
    arguments += [
        "--override-ini",
        "addopts=--import-mode=importlib --tb=native -p cs336_kit.plugin -p no:cacheprovider -p no:unraisableexception",
    ]
    output = io.StringIO()
    with _as_module(adapters), contextlib.redirect_stdout(output):
        status = pytest.main([*arguments, *options, str(root / suite)], plugins=[listener])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"the suite {suite} could not be run:\n{output.getvalue()}")
    return Rehearsal(tuple(listener.passed), listener.failures, listener.explained)


class _Listener:
    def __init__(self) -> None:
        self.passed: list[str] = []
        self.failures: dict[str, Failure] = {}
        self.explained: dict[str, list[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if isinstance(report.longrepr, Failure):
            self.failures[report.nodeid] = report.longrepr
        elif report.when == "call" and report.passed:
            self.passed.append(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        diagnosis: Diagnosis | None = session.config.pluginmanager.get_plugin("diagnosis")
        assert diagnosis is not None
        self.explained = diagnosis.explained


@contextlib.contextmanager
def _as_module(adapters: Mapping[str, Adapter]) -> Iterator[None]:
    """The tests import `adapters`: let them find these, also if they were imported before with others."""

    def taken_out() -> dict[str, ModuleType]:
        return {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith(SUITE_MODULES)}

    before = taken_out()
    module = ModuleType("adapters")
    vars(module).update(adapters)
    sys.modules["adapters"] = module
    try:
        yield
    finally:
        taken_out()
        sys.modules.update(before)
