"""The pytest plugin for plain suites: with the table `[tool.whichline]`, a failing test's report names the wrong line.

Without that table, or beside an assignment.toml, it does nothing. pytest loads this module wherever the package is
installed, so it imports little until a test fails.
"""

import inspect
import sys
from collections.abc import Generator
from functools import cached_property
from typing import TYPE_CHECKING

import pytest

from whichline.plain import Table, TableError, read_table

if TYPE_CHECKING:
    from whichline.plain.process import Follower

TITLE = "which line"
PARALLEL = "Leave -n out to read which line is wrong."


def pytest_configure(config: pytest.Config) -> None:
    root = config.inipath.parent if config.inipath else config.rootpath
    is_served = (root / "assignment.toml").exists() or hasattr(config, "workerinput")
    if is_served or "whichline.plain.child" in sys.modules:
        return
    try:
        table = read_table(root)
    except TableError as error:
        raise pytest.UsageError(str(error)) from None
    if table:
        config.pluginmanager.register(LineReporter(table, config))


class LineReporter:
    """Asks why each failing test fails, and adds the reply to its report."""

    def __init__(self, table: Table, config: pytest.Config) -> None:
        self.table, self.config = table, config
        self.lines: dict[str, list[str]] = {}  # by test id

    @cached_property
    def follower(self) -> "Follower":
        from whichline.plain.process import Follower

        invoked = self.config.invocation_params
        return Follower(self.table, invoked.args, invoked.dir, sys.path)

    def _ask(self, item: pytest.Item) -> list[str]:
        if isinstance(item, pytest.DoctestItem):
            return ["Doctests are not explained."]
        if inspect.iscoroutinefunction(getattr(item, "obj", None)):
            return ["Async tests are not explained."]
        findings = self.follower.ask(item.nodeid)
        return [line for number, each in enumerate(findings) for line in (*[""] * bool(number), *each.lines)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed and call.excinfo is not None and not item.config.getoption("usepdb"):
            lines = self.lines[item.nodeid] = self._ask(item)
            if add := getattr(report.longrepr, "addsection", None):  # JUnit and editors read this text
                add(TITLE, "\n".join(lines))
            else:
                report.sections.append((TITLE, "\n".join(lines)))
        return report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        is_parallel = config.getoption("numprocesses", None) and terminalreporter.stats.get("failed")
        shown = self.lines if config.getoption("tbstyle") in ("no", "line") else {}
        if is_parallel or shown:
            terminalreporter.section(TITLE)
        for line in (PARALLEL,) if is_parallel else [line for each in shown for line in (each, *shown[each], "")]:
            terminalreporter.line(line)

    def pytest_unconfigure(self) -> None:
        if "follower" in vars(self):
            self.follower.stop()
