"""pytest's face of it: the report of a failing test says which line is wrong.

It does nothing where pyproject.toml has no table `[tool.whichline]`, or an assignment.toml lies beside it. Nothing here
imports torch.
"""

import sys
from collections.abc import Generator, Sequence

import pytest

from whichline.engine.finding import Finding
from whichline.plain.process import Follower
from whichline.plain.table import TableError, read_table

TITLE = "which line"


def pytest_configure(config: pytest.Config) -> None:
    root = config.inipath.parent if config.inipath else config.rootpath
    if (root / "assignment.toml").exists() or hasattr(config, "workerinput") or _is_child(config):
        return
    try:
        table = read_table(root)
    except TableError as error:
        raise pytest.UsageError(str(error)) from None
    if table:
        invoked = config.invocation_params
        follower = Follower(table, invoked.args, invoked.dir, sys.path)
        config.pluginmanager.register(TellsLines(follower, bool(config.getoption("numprocesses", None))))


def _is_child(config: pytest.Config) -> bool:
    return "whichline.plain.child" in sys.modules


class TellsLines:
    """Asks of each test that fails, and writes the answer into its report.

    Args:
        follower: answers.
        is_parallel: whether other processes run the tests.
    """

    def __init__(self, follower: Follower, is_parallel: bool) -> None:
        self.follower, self.is_parallel = follower, is_parallel
        self.told: dict[str, list[str]] = {}  # by a test's id

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed and call.excinfo is not None and not item.config.getoption("usepdb"):
            lines = _write(self.follower.ask(item.nodeid))
            self.told[item.nodeid] = lines
            add = getattr(report.longrepr, "addsection", None)  # JUnit and editors read this text
            if add:
                add(TITLE, "\n".join(lines))
            else:
                report.sections.append((TITLE, "\n".join(lines)))
        return report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        if self.is_parallel and terminalreporter.stats.get("failed"):
            terminalreporter.section(TITLE)
            terminalreporter.line("Leave -n out to read which line is wrong.")
        elif self.told and config.getoption("tbstyle") in ("no", "line"):
            terminalreporter.section(TITLE)
            for test, lines in self.told.items():
                for line in (test, *lines, ""):
                    terminalreporter.line(line)

    def pytest_unconfigure(self) -> None:
        self.follower.stop()


def _write(findings: Sequence[Finding]) -> list[str]:
    return [line for number, each in enumerate(findings) for line in (*[""] * bool(number), *each.lines)]
