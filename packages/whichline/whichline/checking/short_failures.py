"""Shorten pytest's output about failing tests to one screen, with the most important part first.

A problem whose failures are explained gets one line below the explanation. Another problem shows its smallest failure
in full, and one line for each kind of other failure. `-v` and `--tb` print every failure.
"""

import math
import os
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from textwrap import shorten

import pytest
from torch import Tensor

from whichline.checking.board import find_together, join_findings, name_places, wrap_lines
from whichline.checking.text import WIDTH
from whichline.engine.case import CaseError
from whichline.engine.finding import MODULE, Finding
from whichline.engine.result import Result
from whichline.engine.suite import Test

MOST_NAMED = 6  # tests of one kind of failure
LONGEST_KIND = 68
LONGEST_WARNING = 150
PYTESTS_OWN = "fE"  # pytest's default for the list at the end: failures and errors

Failure = tuple[Test, Result]


class ShortFailures:
    """Shortens pytest's output about failing tests; the lists are complete when the failures are printed."""

    def __init__(self, results: list[Result], failures: Mapping[str, Failure], explanations: list[Finding]) -> None:
        self.results, self.failures, self.explanations = results, failures, explanations
        self.reports: list[pytest.TestReport] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None]:
        """Let pytest print only some failures, and list all of them only if asked to."""
        config = terminalreporter.config
        self.reports = terminalreporter.stats.get("failed", [])
        ours = [each for each in self.reports if each.nodeid in self.failures]
        if len(ours) == len(self.reports) and config.getoption("reportchars") == PYTESTS_OWN:
            terminalreporter.reportchars = terminalreporter.reportchars.replace("f", "")
        if ours and is_short(config):
            shown = set(self._choose(ours))
            left_out = {id for id, (test, _) in self.failures.items() if test.name not in shown}
            terminalreporter.stats["failed"] = [each for each in self.reports if each.nodeid not in left_out]
        warned = terminalreporter.stats.pop("warnings", []) if is_short(config) else []
        # The position of a warning and the beginning of its text, without the line of code.
        texts = (each.message.partition("\n")[0].replace(f"{config.rootpath}{os.sep}", "") for each in warned)
        for line in dict.fromkeys(shorten(text, LONGEST_WARNING, placeholder=" …") for text in texts):
            terminalreporter.ensure_newline()
            terminalreporter.line("\n".join(wrap_lines([line], WIDTH)), yellow=True)
        yield
        if warned:
            terminalreporter.stats["warnings"] = warned  # they are counted at the end

    @pytest.hookimpl(specname="pytest_terminal_summary", tryfirst=True)
    def pytest_print_others(self, terminalreporter: pytest.TerminalReporter) -> None:
        """After these failures, print a line for each problem and for each kind of the other failures."""
        shown = terminalreporter.stats.get("failed", [])
        if left := [self.failures[each.nodeid] for each in self.reports if each not in shown]:
            explained = {name for each in self.explanations for name in each.tests}
            others = [each for each in left if each[0].name not in explained and self._is_due(each[1])]
            what = "more" if any(each.nodeid in self.failures for each in shown) else "not explained"
            counts = *count_failures(self.results, self.explanations), *count_kinds(others, what)
            terminalreporter.ensure_newline()
            for line in wrap_lines(["", *counts] if counts else [], WIDTH):
                terminalreporter.line(line)
        if self.reports:
            terminalreporter.stats["failed"] = self.reports

    def _is_due(self, result: Result) -> bool:
        """Tell whether to describe a failure: one of a bonus problem only after all required ones pass."""
        return not (result.bonus and any(each.is_wrong and not each.bonus for each in self.results))

    def _choose(self, reports: Iterable[pytest.TestReport]) -> Iterator[str]:
        """Choose the test of each problem with the fewest numbers, and tests that are not the student's fault.

        It considers only tests with printed output where a problem has an explanation.
        """
        explained = {each.problem for each in self.explanations}
        by_problem: dict[str, list[Test]] = {}
        for report in reports:
            test, result = self.failures[report.nodeid]
            if not result.is_wrong:
                yield test.name
            elif self._is_due(result) and (result.problem not in explained or report.sections):
                by_problem.setdefault(result.problem, []).append(test)
        for tests in by_problem.values():
            yield min(tests, key=count_numbers).name


def is_short(config: pytest.Config) -> bool:
    """Tell whether the user did not ask for every failure."""
    return not any(arg.startswith("--tb") for arg in config.invocation_params.args) and config.get_verbosity() < 1


def shorten_findings(findings: Sequence[Finding], results: Iterable[Result]) -> Iterator[str]:
    """The lines of a problem's findings; if the first is about an exception, only the positions of the others.

    The exception may cause the others, which are shown in full after it is corrected.
    """
    is_raised = any(result.raised and result.test in findings[0].tests for result in results)
    shown = find_together(findings) if is_raised else findings
    yield from join_findings(shown)
    yield from name_places(each for each in findings if each not in shown)


def order_problems(results: Iterable[Result]) -> list[str]:
    """The problems with failing tests: required ones first, and then by the points that are lost."""
    lost: dict[str, list[Result]] = {}
    for result in results:
        if result.is_wrong:
            lost.setdefault(result.problem, []).append(result)
    points = {problem: math.fsum(each.maximum for each in wrong) for problem, wrong in lost.items()}
    return sorted(lost, key=lambda problem: (lost[problem][0].bonus, -points[problem]))


def count_failures(results: Sequence[Result], explanations: Iterable[Finding]) -> Iterator[str]:
    """Count, for each of several failing problems, the failing tests and those that an earlier problem explains."""
    same = {each.problem: each for each in explanations if each.is_of_earlier}
    problems = order_problems(results)
    for problem in problems if len(problems) > 1 else ():
        own = [result for result in results if result.problem == problem]
        wrong = sum(result.is_wrong for result in own)
        reason = ""
        if each := same.get(problem):
            alike = len({result.test for result in own}.intersection(each.tests))
            count = "" if alike == wrong else f", {alike}"
            reason = f"{count} {'for the same reason' if each.function == MODULE else 'due to an earlier one'}"
        fail = "fails" if wrong == 1 else "fail"
        yield f"{problem + ' (bonus)' * own[0].bonus:<30} {wrong} of {len(own)} tests {fail}{reason}"


def count_numbers(test: Test) -> float:
    """Count the elements of all inputs of a test; infinity if it makes its own inputs."""
    try:
        cases = test.cases()
    except CaseError:
        return float("inf")
    numbers = sum(x.numel() for case in cases for x in case.inputs.values() if isinstance(x, Tensor))
    return numbers if cases else float("inf")


def count_kinds(failures: Sequence[Failure], what: str) -> Iterator[str]:
    """Describe each kind of failure, whose headlines differ only in numbers, by its first headline and its tests."""
    kinds: dict[str, list[Failure]] = {}
    for test, result in failures:
        kinds.setdefault(re.sub(r"\d[\d.,]*\b", "", result.headline), []).append((test, result))
    for alike in kinds.values():
        names = list(dict.fromkeys(test.parameter or test.name.removeprefix("test_") for test, _ in alike))
        first = ", the first" * (len({result.headline for _, result in alike}) > 1)
        yield f"{len(alike)} {what}{first}: {shorten(alike[0][1].headline, LONGEST_KIND, placeholder=' …')}"
        yield f"  {', '.join([*names[:MOST_NAMED], *(['…'] if len(names) > MOST_NAMED else [])])}"
