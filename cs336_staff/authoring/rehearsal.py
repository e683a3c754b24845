"""A suite run in this process on adapters that staff wrote: the very tests and the very diagnosis of the students."""

import contextlib
import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Generic, Protocol, TypeVar

import pytest
import torch
from _pytest.runner import runtestprotocol

from cs336_kit.engine.failure import Failure
from cs336_kit.plugin import Diagnosis
from cs336_staff.authoring.misconceptions.parts import Adapter

PUBLIC = Path("tests")
HIDDEN = Path("cs336_staff/hidden")
T = TypeVar("T")

# What holds adapters: the tests of both suites, and the module itself.
SUITE_MODULES = ("adapters", "tests.test_", "cs336_staff.hidden.test_")


@dataclass(frozen=True)
class Rehearsal:
    """What became of one run.

    Args:
        passed: the ids of the tests that passed.
        failed: the ids of those that did not.
        failures: what a student reads of them.
        explained: for each family of cases in which something failed, the ids of the misconceptions that were named.
    """

    passed: tuple[str, ...]
    failed: tuple[str, ...]
    failures: dict[str, Failure]
    explained: dict[str, list[str]]

    @property
    def named(self) -> set[str]:
        """Every misconception that was named for a family."""
        return {id for ids in self.explained.values() for id in ids}


class Rehearse(Protocol):
    """Runs the collected suite on the given `run_*` functions."""

    def __call__(self, adapters: Mapping[str, Adapter], *, until_first_failure: bool = False) -> Rehearsal: ...


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
    return with_collected(root, lambda rehearse: rehearse(adapters), (suite,), *options)


def with_collected(root: Path, use: Callable[[Rehearse], T], suites: Sequence[Path] = (PUBLIC,), *options: str) -> T:
    """Collect tests once and call `use` with a function that runs them; the arguments are those of `rehearse`."""
    stage = _Stage(use)
    arguments = ["--quiet", "--rootdir", str(root), "-c", str(root / "pyproject.toml")]
    # Without the types of the handout: adapters of staff are not annotated.
    arguments += [
        "--override-ini",
        "addopts=--import-mode=importlib -p cs336_kit.plugin "
        "-p no:cacheprovider -p no:logging -p no:unraisableexception",
    ]
    arguments += [*options, *(str(root / suite) for suite in suites)]
    output = io.StringIO()
    with _as_module(stage.adapters), contextlib.redirect_stdout(output):
        status = pytest.main(arguments, plugins=[stage])
    if stage.raised is not None:
        raise stage.raised
    if status != pytest.ExitCode.OK:
        raise RuntimeError(f"{' and '.join(map(str, suites))} could not be run:\n{output.getvalue()}")
    return stage.result


class _Stage(Generic[T]):
    """A pytest plugin: instead of running the collected tests once, hand a function that runs them to `use`."""

    result: T

    def __init__(self, use: Callable[[Rehearse], T]) -> None:
        self.use = use
        self.raised: BaseException | None = None
        self.adapters = ModuleType("adapters")

    def pytest_configure(self, config: pytest.Config) -> None:
        config.option.tbstyle = "value"  # the kit puts words in the place of a traceback, which costs more than a test

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed or not session.items:
            return None  # pytest says why
        try:
            self.result = self.use(partial(self._rehearse, session))
        except BaseException as error:  # it goes past pytest, which would print it as its own
            self.raised = error
        return True

    def _rehearse(
        self, session: pytest.Session, adapters: Mapping[str, Adapter], *, until_first_failure: bool = False
    ) -> Rehearsal:
        vars(self.adapters).clear()
        vars(self.adapters).update(adapters)
        diagnosis = session.config.pluginmanager.get_plugin("diagnosis")
        assert isinstance(diagnosis, Diagnosis)
        diagnosis.evidence, diagnosis.failures, diagnosis.explained = [], {}, {}
        torch.manual_seed(0)  # for those that draw random numbers, by mistake
        passed, failed = [], []
        for item in session.items:
            reports = runtestprotocol(item, log=False, nextitem=None)
            (passed if all(report.passed for report in reports) else failed).append(item.nodeid)
            if failed and until_first_failure:
                break
        diagnosis.pytest_sessionfinish(session)
        return Rehearsal(tuple(passed), tuple(failed), diagnosis.failures, diagnosis.explained)


@contextlib.contextmanager
def _as_module(adapters: ModuleType) -> Iterator[None]:
    """The tests import `adapters`: let them find these, also if they were imported before with others."""

    def taken_out() -> dict[str, ModuleType]:
        return {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith(SUITE_MODULES)}

    before = taken_out()
    sys.modules["adapters"] = adapters
    try:
        yield
    finally:
        taken_out()
        sys.modules.update(before)
