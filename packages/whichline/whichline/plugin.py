"""The pytest plugin: pytest collects and reports, the engine runs the tests and explains the failures.

The explanations come first, unless the user asked for every failure. Problems that are not written yet get one line
each. Below the failures stand the forbidden functions in use, and the points that they cost.
"""

import whichline.required

# isort: split
import argparse
import atexit
import gc
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

import whichline.quick_start
from whichline.checking.board import begin_at, join_findings, wrap_lines
from whichline.checking.own_work import find_adapters, list_forbidden_work, watch_students_code
from whichline.checking.plain_text import print_everywhere
from whichline.checking.post_mortem import find_frame
from whichline.checking.settings import describe_undone, undo_settings
from whichline.checking.short_failures import ShortFailures, count_numbers, is_short, order_problems, shorten_findings
from whichline.checking.text import WIDTH, Text
from whichline.checking.watchdog import LONG, describe_time_limit, find_students_line, watchdog
from whichline.engine.annotations import check_annotations
from whichline.engine.assignment import SuiteError, find_tests, load_problems, name_command, serve, student_files
from whichline.engine.errors import CourseworkError
from whichline.engine.failure import describe
from whichline.engine.finding import Finding
from whichline.engine.kit import check_kit
from whichline.engine.result import Check, Result
from whichline.engine.suite import Suite, Test, add_points, expand, load_suite, run
from whichline.locate.explain import describe_errors, explain
from whichline.quick_end import end_quickly
from whichline.rules.watch import Use, Watch

NOT_WRITTEN = "not written yet"
OTHERS = "To find this, tests that you did not select were run, too."
TEST = pytest.StashKey[Test]()
RESULT = pytest.StashKey[Result]()


class TestFailed(pytest.fail.Exception):
    """Ends an item in pytest. The result has the message, so pytest does not read sources for a traceback."""

    __test__ = False


def pytest_configure(config: pytest.Config) -> None:
    print_everywhere()
    root = config.inipath.parent if config.inipath else config.rootpath  # an editor's --rootdir may be above it
    try:
        serve(root)
        check_kit(root)
        engine_runs = EngineRuns(root, config.getini("suites"))
    except CourseworkError as error:
        raise pytest.UsageError(str(error)) from None
    if config.getoption("numprocesses", None):  # pytest-xdist's
        raise pytest.UsageError("leave -n out: the tests run in one process, and take only seconds")
    config.addinivalue_line("markers", "cases(pattern): run the test on each stored case whose name matches")
    config.addinivalue_line("markers", "memory(bytes): private memory that the code may map when it is graded")
    config.pluginmanager.register(ShortFailures(engine_runs.results, engine_runs.failures, engine_runs.explanations))
    config.pluginmanager.register(engine_runs)  # the last one is asked first
    atexit.register(end_quickly)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("suites", "folders whose tests the engine runs", type="paths")
    if find_spec("xdist") is None:  # so that `-n` gets our message, not pytest's
        parser.getgroup("xdist")._addoption("-n", dest="numprocesses", help=argparse.SUPPRESS)


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Test:
    """The engine's test, which reads its test case when it runs."""
    return request.param


class EngineRuns:
    """Lets the engine run the tests that count, and explains the failures at the end.

    In the folders `suites`, pytest runs the tests that no problem counts, which are the student's own. AssignmentError
    if `assignment.toml` cannot be used.
    """

    def __init__(self, root: Path, suites: Sequence[Path]) -> None:
        self.root, self.suites = root, suites
        self.problems = load_problems(root, left_out=None)
        self.files = find_tests(suites, self.problems.values())
        self.results: list[Result] = []
        self.failures: dict[str, tuple[Test, Result]] = {}  # by the id of the item
        self.explanations: list[Finding] = []
        self.errors: list[str] = []  # of the search
        self.watch: Watch | None = None
        self.debugged = self.searched = self.warned_of_time = False
        self.seen: defaultdict[str, set[Use]] = defaultdict(set)  # by problem
        self.terminal = os.dup(2)  # pytest captures what is written to 2 during a test

    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> None:
        """Install the watch before the first test module imports the student's files."""
        if self.watch is None and any(map(module_path.is_relative_to, self.suites)):
            self.watch = watch_students_code(self.root)
            check_annotations(student_files(), undo_settings)
            sys.argv = [""]  # a parser in the student's files must not find pytest's arguments
            # The test cases are small: threads would cost time, above all on a busy machine.
            torch.set_num_threads(1)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if not self._is_ours(metafunc.definition):
            return
        try:
            tests = expand(metafunc.function.__name__, metafunc.function, self.root)
        except SuiteError as error:
            raise pytest.UsageError(str(error)) from None
        if tests[0].stored:
            metafunc.parametrize("case", tests, ids=[test.parameter for test in tests], indirect=True)

    def pytest_collection_modifyitems(self, items: list[pytest.Item], config: pytest.Config) -> None:
        ours = [item for item in items if isinstance(item, pytest.Function) and self._is_ours(item)]
        by_name = {test.name: test for test in add_points([*map(self._test, ours)], self.problems)}
        for item in ours:
            item.stash[TEST] = by_name[item.name]

    def pytest_collection_finish(self) -> None:
        if not gc.isenabled():
            whichline.quick_start.collect_garbage_again()

    def _test(self, item: pytest.Function) -> Test:
        given = item.callspec.params.get("case") if hasattr(item, "callspec") else None
        return given if isinstance(given, Test) else expand(item.function.__name__, item.function, self.root)[0]

    def _is_ours(self, item: pytest.Function) -> bool:
        return item.cls is None and self.files.get(item.function.__name__) == item.path

    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        if TEST not in pyfuncitem.stash:
            return None
        assert self.watch is not None
        test = pyfuncitem.stash[TEST]
        called = find_adapters(test.problem, sys.modules.get("adapters"))  # the tests have imported it
        with self.watch.watching(*called), watchdog(LONG, partial(self._warn_of_time_limit, pyfuncitem.name)):
            result = run(test, self.root)
        if self.debugged and result.raised == "Exit":
            pytest.exit("Quitting debugger")  # after `q`, which the engine took for an error of the student's
        self.seen[result.problem] |= self.watch.uses
        pyfuncitem.stash[RESULT] = result
        self.results.append(result)
        if not result.passed:
            self.failures[pyfuncitem.nodeid] = pyfuncitem.stash[TEST], result
            raise TestFailed(pytrace=False)
        return True

    def pytest_enter_pdb(self) -> None:
        """While somebody debugs, do not warn about time, and do not search: the search would stop there again."""
        self.debugged = True

    def _warn_of_time_limit(self, what: str, seconds: float) -> None:
        if not self.debugged and not self.warned_of_time:
            self.warned_of_time = True
            os.write(self.terminal, f"\n{describe_time_limit(what, seconds, find_students_line(self.root))}\n".encode())

    def pytest_report_teststatus(self, report: pytest.CollectReport | pytest.TestReport) -> tuple[str, str, str] | None:
        """Count tests of code that is not written yet apart from failures, which get several lines each."""
        if isinstance(report.longrepr, ResultText) and report.longrepr.result.check is Check.NOT_WRITTEN:
            return NOT_WRITTEN, "-", NOT_WRITTEN.upper()
        return None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.excinfo is not None and isinstance(call.excinfo.value, TestFailed):
            place = (item.location[0], (item.location[1] or 0) + 1)
            text: Any = ResultText(item.stash[RESULT], place, self, item.config)
            report.longrepr = text
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Describe why a test module cannot be imported, which is nearly always an error in the student's files."""
        error: BaseException | None = None
        try:
            report = yield
        except SystemExit as end:  # pytest would end, too
            report, error = pytest.CollectReport(collector.nodeid, "failed", None, []), end
        if collector.path in self.files.values() and report.failed and (call := getattr(report, "call", None)):
            error = call.excinfo.value.__cause__ or call.excinfo.value
        if error:
            failure = describe(error, self.root)
            text: Any = Text(failure.headline, failure.details, (collector.nodeid, 1))  # it has all that pytest uses
            report.longrepr = text
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # around that of the debugger
    def pytest_exception_interact(
        self, node: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport
    ) -> Generator[None]:
        """Before `--pdb` stops, print the explanation of the test, and make it stop in the student's frame."""
        if not node.config.getoption("usepdb") or node.nodeid not in self.failures or call.excinfo is None:
            return (yield)
        test, result = self.failures[node.nodeid]
        suite = self._load_suite()
        found = explain(suite, [result], errors=self.errors)
        if at := find_frame(suite, test, found):
            call.excinfo = pytest.ExceptionInfo.from_exception(call.excinfo.value.with_traceback(at))
        _drop_captured(node.config)
        shown = report.longrepr
        if found:
            report.longrepr = "\n".join(wrap_lines([result.headline, *found[0].lines], WIDTH))
        yield
        report.longrepr = shown
        self.explanations += found

    @pytest.hookimpl(tryfirst=True)  # before the failures are printed
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self.debugged and not all(result.passed for result in self.results):
            tell = partial(self._warn_of_time_limit, "The search for what is wrong")
            try:
                with suppress(SuiteError), watchdog(3 * LONG, tell):  # pytest reports a file that cannot be imported
                    self.explanations += explain(self._load_suite(), self.results, errors=self.errors)
                    self.searched = True
            except KeyboardInterrupt:
                os.write(self.terminal, b"\nYou pressed Ctrl-C: the search for what is wrong did not end.\n")
            _drop_captured(session.config)

    def _load_suite(self) -> Suite:
        return load_suite(self.root, self.suites, self.problems, sys.modules["adapters"])  # the tests have imported it

    @pytest.hookimpl(specname="pytest_sessionfinish", wrapper=True, tryfirst=True)
    def pytest_say_what_is_next(self, session: pytest.Session) -> Generator[None]:
        """Say in the last lines where to correct or write code."""
        yield
        if terminal := session.config.pluginmanager.get_plugin("terminalreporter"):
            for line in self._describe_next():
                terminal.line(line, bold=True)

    def _describe_next(self) -> Iterator[str]:
        """The position of the first finding and a test case that shows it, or the first code that is to be written."""
        if first := next((each for each in self._rank_findings() if each.file), None):
            yield f"Now open:  {first.file}:{first.line}"
            tests = [test for test, _ in self.failures.values() if test.name in first.tests and test.stored]
            if tests:
                yield f"To see it: {name_command(f'debug --case {min(tests, key=count_numbers).cases()[0].name}')}"
        elif first := self._find_unwritten():
            if all(result.check is Check.NOT_WRITTEN for result in self.results):
                yield f"To begin:  {name_command('check')}"
            place = begin_at(self.root, self.problems[first.problem]) or first.headline.rpartition(" in ")[2]
            yield f"Now open:  {place}"

    def _find_unwritten(self) -> Result | None:
        """The first test of code that is not written yet: a bonus problem's only if no required test fails."""
        unwritten = [each for each in self.results if each.check is Check.NOT_WRITTEN]
        first = min(unwritten, key=lambda each: each.bonus, default=None)
        if first is None or (first.bonus and any(each.is_wrong and not each.bonus for each in self.results)):
            return None
        return first

    def _rank_findings(self) -> list[Finding]:
        """List the findings, those that cost most first; one that repeats an earlier problem's is left out."""
        order = order_problems(self.results)
        findings = [each for each in self.explanations if not each.is_of_earlier]
        return sorted(findings, key=lambda each: order.index(each.problem))

    @pytest.hookimpl(specname="pytest_terminal_summary", wrapper=True, tryfirst=True)
    def pytest_print_findings_first(self, terminalreporter: pytest.TerminalReporter) -> Generator[None]:
        """Print the findings before pytest prints the failures that they do not explain."""
        if is_short(terminalreporter.config):
            bonus = {result.problem for result in self.results if result.bonus}
            findings = self._rank_findings()
            self._print_findings(terminalreporter, [each for each in findings if each.problem not in bonus] or findings)
        yield

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Below the failures, print the findings if the user asked for all failures, and all other notes."""
        if not terminalreporter.stats and terminalreporter.config.invocation_params.dir != self.root:
            terminalreporter.line(f"The tests are in another folder. To run them:  cd {self.root}")
        if not is_short(terminalreporter.config):
            self._print_findings(terminalreporter, self._rank_findings())
        for line in wrap_lines(describe_errors(self.errors), WIDTH):
            terminalreporter.line(line)
        noted = (list_forbidden_work(self.root, self.problems, self.seen), describe_undone(self.root))
        for title, *lines in filter(None, noted):
            terminalreporter.section(title, yellow=True)
            for line in wrap_lines(lines, WIDTH):
                terminalreporter.line(line)
        if unwritten := [result for result in self.results if result.check is Check.NOT_WRITTEN]:
            terminalreporter.section(NOT_WRITTEN.capitalize(), yellow=True)
            tests = Counter(result.problem for result in unwritten)
            for result in reversed({result.problem: result for result in reversed(unwritten)}.values()):
                place = result.headline.rpartition(" in ")[2]
                count = f"{tests[result.problem]} test{'s' * (tests[result.problem] > 1)}"
                terminalreporter.line(f"{result.problem:<30} {count:<9} {place}")

    def _print_findings(self, terminal: pytest.TerminalReporter, findings: Sequence[Finding]) -> None:
        for problem in dict.fromkeys(each.problem for each in findings):
            terminal.section(f"What your code does: {problem}", yellow=True)
            found = [each for each in findings if each.problem == problem]
            lines = shorten_findings(found, self.results) if is_short(terminal.config) else join_findings(found)
            for line in wrap_lines(lines, WIDTH):
                terminal.line(line, bold=True)
        if {name for each in findings for name in each.tests} - {result.test for result in self.results}:
            terminal.line(OTHERS)


class ResultText(Text):
    """One result for pytest to print, with the smallest wrong row if nothing explains its problem."""

    def __init__(self, result: Result, place: tuple[str, int], runs: EngineRuns, config: pytest.Config) -> None:
        super().__init__(result.headline, result.details, place)
        self.result, self.runs, self.config = result, runs, config

    def toterminal(self, tw: Any) -> None:
        explained = any(each.problem == self.result.problem for each in self.runs.explanations)
        is_alone = explained and self.result.is_wrong and is_short(self.config)  # pytest prints its output below
        if self.config.getoption("tbstyle") == "line" or is_alone:  # pytest prints only the position
            return
        super().toterminal(tw)
        is_shown = self.runs.problems[self.result.problem].feedback != "tests"
        searched = ("No line of your code was found that explains it.",) if is_shown and self.runs.searched else ()
        on_paper = () if explained or not self.result.on_paper else (*searched, *self.result.on_paper)
        for lines in filter(None, (on_paper, self.result.about_case)):
            tw.line()
            for line in wrap_lines(lines, WIDTH, "  "):
                tw.line(line)


def _drop_captured(config: pytest.Config) -> None:
    """Drop what the student's code printed during the search into a stream of pytest's that it had kept."""
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    if capture:
        with suppress(AssertionError):  # Ctrl-C has ended it
            capture.read_global_capture()
