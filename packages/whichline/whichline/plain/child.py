"""The process that explains failing tests: pytest collects here once more, and runs the tests that it is sent."""

import json
import os
import random
import sys
import time
import traceback
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pytest
import torch

from whichline.engine.finding import Finding
from whichline.locate.probe import TooLongError
from whichline.plain import Names
from whichline.plain.diagnosis import Diagnosis
from whichline.plain.functions import Functions
from whichline.plain.process import report


class Server:
    """A pytest plugin that, instead of running all tests, explains those that it is asked about in lines of JSON."""

    def __init__(self, functions: Functions, asked: TextIO, answers: TextIO, root: Path) -> None:
        self.diagnosis = Diagnosis(functions, self.run_item, root)
        self.asked, self.answers = asked, answers
        self.items: dict[str, pytest.Item] = {}
        self.error: BaseException | None = None
        self.last: pytest.Item | None = None  # the last test that ran
        self.was_anew = False  # whether it made the shared fixtures anew, maybe with other code

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        if debugger := config.pluginmanager.get_plugin("pdbinvoke"):
            config.pluginmanager.unregister(debugger)
        config.option.tbstyle = "no"  # to render tracebacks that nobody reads would take half of the time

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        for line in self.asked:
            if test := json.loads(line):
                answer = [each.as_json() for each in self._explain(test)]
            else:
                answer = [each for each in self.items if self.diagnosis.suite.run_item(each) is not None]
            self.answers.write(json.dumps([time.process_time(), answer]) + "\n")
            self.answers.flush()
        os._exit(0)  # no report, no cache, no coverage is written here

    def _explain(self, test: str) -> list[Finding]:
        if test not in self.items:
            return report(test, "The process that explains failing tests did not collect this one.")
        try:
            return self.diagnosis.explain(test, *self._list_others(self.items[test]))
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.lineno}"
            return report(test, f"The search itself failed, with {type(error).__name__}: {error} ({where}).")

    def _list_others(self, item: pytest.Item) -> tuple[list[str], list[str]]:
        """List the same test with other parameters, and the other tests of the module, those nearest to it first."""
        name = getattr(item, "originalname", None)
        alike = [each for each in self.items.values() if each.parent is item.parent and each is not item]
        same = [each.nodeid for each in alike if name and getattr(each, "originalname", None) == name]
        of_module = [each for each in self.items.values() if each.path == item.path]
        number = of_module.index(item)
        beside = sorted(range(len(of_module)), key=lambda other: abs(other - number))[1:]
        return same, [of_module[each].nodeid for each in beside]

    def run_item(self, test: str, is_anew: bool = False) -> BaseException | None:
        """Run a test with new fixtures, with `is_anew` also the shared ones; return the exception that ended it."""
        self.error = None
        item = self.items[test]
        ends_all = is_anew or self.was_anew
        if self.last and (ends_all or self.last.parent is not item.parent):
            # Only pytest's own: other plugins have ended it already.
            runner: Any = item.config.pluginmanager.get_plugin("runner")
            runner.pytest_runtest_teardown(self.last, None if ends_all else item)  # what the two do not share
        self.last, self.was_anew = item, is_anew
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
        with suppress(KeyboardInterrupt):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=_Next(item))
        return self.error

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        try:
            return (yield)
        except TooLongError as error:  # pytest remembers only an `Exception`, and without it the fixture is not ended
            fixturedef.cached_result = (None, fixturedef.cache_key(request), (error, None))  # type: ignore[arg-type, assignment]
            raise

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield  # first: it also copies the errors of a unittest
        if call.excinfo and self.error is None and not isinstance(call.excinfo.value, pytest.skip.Exception):
            self.error = call.excinfo.value
        return report


class _Next:
    """Stands for the next test, of the same module: so fixtures of the module and above stay."""

    def __init__(self, item: pytest.Item) -> None:
        self.item = item

    def listchain(self) -> list[Any]:
        return [*self.item.listchain()[:-1], self]


def main() -> None:
    """Serve the process at the other end of stdin and stdout, which are then free for the tests."""
    asked, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    settings = json.loads(asked.readline())
    sys.path[:] = settings["path"]
    functions = Functions(settings["code"], settings["reference"], Names(settings["names"]))
    sys.meta_path[:0] = [functions.code, functions.reference]  # type: ignore[list-item]
    pytest.main([*settings["args"], "--maxfail=0"], plugins=[Server(functions, asked, answers, Path(settings["root"]))])


if __name__ == "__main__":
    main()
