"""The report of a failing test, and what is wrong in it.

Nothing here imports torch.
"""

from collections.abc import Generator, Sequence

import pytest

from whichline.engine.finding import Finding
from whichline.plain.process import Follower

TITLE = "which line"


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
