"""Of the failures of a problem pytest prints the smallest in full, and a line for each kind of the others.

What explains them stands below, and is what a student should find first. `-v` and `--tb` print every failure.
"""

import re
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from textwrap import shorten

import pytest
from torch import Tensor

from cs336_kit.checking.board import wrapped
from cs336_kit.engine.case import CaseError
from cs336_kit.engine.result import Explanation, Result
from cs336_kit.engine.suite import Test

WIDTH = 78  # of what pytest prints
MOST_NAMED = 6  # of the tests that fail alike
LONGEST_KIND = 68
PYTESTS_OWN = "fE"  # what it lists at the end if nobody asks for anything else: what failed, and errors


class ShortFailures:
    """Shortens what pytest says of the tests that failed.

    Args:
        failures: by the id of its item, what failed and its result.
        explanations: of all problems, when the failures are printed.
    """

    def __init__(self, failures: dict[str, tuple[Test, Result]], explanations: list[Explanation]) -> None:
        self.failures = failures
        self.explanations = explanations
        self.reports: list[pytest.TestReport] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None]:
        """Have pytest print some failures, and no list of all unless it was asked for."""
        config = terminalreporter.config
        self.reports = terminalreporter.stats.get("failed", [])
        ours = [self.failures[each.nodeid] for each in self.reports if each.nodeid in self.failures]
        if len(ours) == len(self.reports) and config.getoption("reportchars") == PYTESTS_OWN:
            terminalreporter.reportchars = terminalreporter.reportchars.replace("f", "")
        traced = any(arg.startswith("--tb") for arg in config.invocation_params.args)
        if ours and not traced and config.get_verbosity() < 1:
            follow = {explanation.problem for explanation in self.explanations if explanation.is_of_earlier}
            shown = {test.name for test in choose_smallest(ours, follow)}
            terminalreporter.stats["failed"] = [
                each
                for each in self.reports
                if each.nodeid not in self.failures or self.failures[each.nodeid][0].name in shown
            ]
        return (yield)

    @pytest.hookimpl(specname="pytest_terminal_summary", tryfirst=True)
    def pytest_tell_others(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Tell of the others in a line for each kind, when the failures have been printed."""
        shown = terminalreporter.stats.get("failed", [])
        if left := [self.failures[each.nodeid] for each in self.reports if each not in shown]:
            terminalreporter.ensure_newline()
            for line in wrapped(["", *count_kinds(left)], WIDTH):
                terminalreporter.line(line)
        if self.reports:
            terminalreporter.stats["failed"] = self.reports


def choose_smallest(failures: Iterable[tuple[Test, Result]], follow: Collection[str]) -> Iterator[Test]:
    """The failing test of each problem with the fewest numbers to look at, and what the student is not to blame for.

    Problems that `follow` from earlier ones are wrong only with these, and have none.
    """
    by_problem: dict[str, list[Test]] = {}
    for test, result in failures:
        if not result.is_wrong:
            yield test
        elif result.problem not in follow:
            by_problem.setdefault(result.problem, []).append(test)
    for tests in by_problem.values():
        yield min(tests, key=count_numbers)


def count_numbers(test: Test) -> float:
    """The elements of all inputs of a test; of one that makes its own, more than of any other."""
    try:
        cases = test.cases()
    except CaseError:
        return float("inf")
    numbers = sum(x.numel() for case in cases for x in case.inputs.values() if isinstance(x, Tensor))
    return numbers if cases else float("inf")


def count_kinds(failures: Sequence[tuple[Test, Result]]) -> Iterator[str]:
    """A line for each kind of failure: those whose headlines differ in numbers alone."""
    kinds: dict[str, list[Test]] = {}
    for test, result in failures:
        kinds.setdefault(re.sub(r"\d[\d.,]*\b", "…", result.headline), []).append(test)
    for kind, tests in kinds.items():
        names = list(dict.fromkeys(test.parameter or test.name.removeprefix("test_") for test in tests))
        more = [*names[:MOST_NAMED], *(["…"] if len(names) > MOST_NAMED else [])]
        yield f"{len(tests)} more: {shorten(kind, LONGEST_KIND, placeholder=' …')}"
        yield f"  {', '.join(more)}"
