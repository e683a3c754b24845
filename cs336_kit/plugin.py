"""The pytest plugin: pytest collects and reports, the engine runs the tests and says what is wrong.

What is not written yet takes one line for each problem. Below the failures it tells what of the code that passes is not
the student's own work, and what that costs.
"""

import atexit
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import torch
from _pytest._code.code import ReprFileLocation, TerminalRepr
from _pytest._io import TerminalWriter
from _pytest.capture import CaptureManager

import cs336_kit.quick_start
from cs336_kit.checking.board import begin_at, said_once, wrapped
from cs336_kit.checking.own_work import find_adapters, not_own_work, watch_students_code
from cs336_kit.checking.plain_text import print_everywhere
from cs336_kit.checking.short_failures import WIDTH, ShortFailures
from cs336_kit.checking.watchdog import LONG, find_students_line, tell_of_time, watchdog
from cs336_kit.engine.assignment import AssignmentError, Problem, SuiteError, load_problems
from cs336_kit.engine.errors import CourseworkError
from cs336_kit.engine.failure import describe
from cs336_kit.engine.kit import check_kit
from cs336_kit.engine.result import Check, Explanation, Result
from cs336_kit.engine.suite import Test, expand, load_suite, run, with_points
from cs336_kit.examination.explain import explain
from cs336_kit.quick_end import end_quickly
from cs336_kit.rules.watch import Use, Watch

NOT_WRITTEN = "not written yet"
TEST = pytest.StashKey[Test]()
RESULT = pytest.StashKey[Result]()


class TestFailed(pytest.fail.Exception):
    """Ends an item in pytest; the words are in its result, so pytest need not look through sources for a trace."""

    __test__ = False


def pytest_configure(config: pytest.Config) -> None:
    print_everywhere()
    try:
        check_kit(config.rootpath)
    except CourseworkError as error:
        raise pytest.UsageError(str(error)) from None
    if config.getoption("numprocesses", None):  # pytest-xdist's
        raise pytest.UsageError("leave -n out: what your code does is measured in one process, in seconds")
    config.addinivalue_line("markers", "cases(pattern): run the test on each stored case whose name matches")
    config.addinivalue_line("markers", "memory(bytes): private memory that the code may map when it is graded")
    engine_runs = EngineRuns()
    config.pluginmanager.register(engine_runs)
    config.pluginmanager.register(ShortFailures(engine_runs.failures, engine_runs.explanations))
    atexit.register(end_quickly)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("suites", "folders whose tests the engine runs", type="paths")


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Test:
    """The test as the engine has it, which reads the case when it runs."""
    return request.param


class EngineRuns:
    """Lets the engine run the tests of the suites, and explains at the end what failed."""

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.failures: dict[str, tuple[Test, Result]] = {}  # by the id of the item
        self.explanations: list[Explanation] = []
        self.problems: dict[str, Problem] = {}
        self.watch: Watch | None = None
        self.debugged = False
        self.told_of_time = False
        self.seen: defaultdict[str, set[Use]] = defaultdict(set)  # by problem
        self.terminal = os.dup(2)  # pytest keeps what is written there during a test

    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> None:
        """Watch before the first module of tests imports the student's files."""
        if self.watch is None and _is_in_suite(module_path, parent.config):
            self.watch = watch_students_code(parent.config.rootpath)
            # The cases are small: threads cost more than they give, above all where others are busy.
            torch.set_num_threads(1)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if not _is_ours(metafunc.definition):
            return
        try:
            tests = expand(metafunc.function.__name__, metafunc.function, metafunc.config.rootpath)
        except SuiteError as error:
            raise pytest.UsageError(str(error)) from None
        if tests[0].stored:
            ids = [test.parameter for test in tests]
            metafunc.parametrize("case", tests, ids=ids, indirect=True)

    def pytest_collection_modifyitems(self, items: list[pytest.Item], config: pytest.Config) -> None:
        ours = [item for item in items if _is_ours(item) and isinstance(item, pytest.Function)]
        if not ours:
            return
        found = [self._test(item) for item in ours]
        try:
            self.problems = load_problems(config.rootpath)
        except AssignmentError as error:
            raise pytest.UsageError(str(error)) from None
        by_name = {test.name: test for test in with_points(found, self.problems)}
        for item in ours:
            item.stash[TEST] = by_name[item.name]

    def pytest_collection_finish(self) -> None:
        cs336_kit.quick_start.look_again()

    @staticmethod
    def _test(item: pytest.Function) -> Test:
        given = item.callspec.params.get("case") if hasattr(item, "callspec") else None
        return (
            given if isinstance(given, Test) else expand(item.function.__name__, item.function, item.config.rootpath)[0]
        )

    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        if TEST not in pyfuncitem.stash:
            return None
        assert self.watch is not None
        root, test = pyfuncitem.config.rootpath, pyfuncitem.stash[TEST]
        called = find_adapters(test.problem, sys.modules.get("adapters"))  # the tests have imported it
        with self.watch.watching(*called), watchdog(LONG, partial(self._tell_of_time, root, pyfuncitem.name)):
            result = run(test, root)
        if self.debugged and result.raised == "Exit":
            pytest.exit("Quitting debugger")  # as pytest does after `q`, which the engine took for the student's error
        self.seen[result.problem] |= self.watch.uses
        pyfuncitem.stash[RESULT] = result
        self.results.append(result)
        if not result.passed:
            self.failures[pyfuncitem.nodeid] = pyfuncitem.stash[TEST], result
            raise TestFailed(pytrace=False)
        return True

    def pytest_enter_pdb(self) -> None:
        """Leave whoever debugs in peace: no word of the time, and no examination, which would stop there again."""
        self.debugged = True

    def _tell_of_time(self, root: Path, what: str, seconds: float) -> None:
        if not self.debugged and not self.told_of_time:
            self.told_of_time = True
            os.write(self.terminal, f"\n{tell_of_time(what, seconds, find_students_line(root))}\n".encode())

    def pytest_report_teststatus(self, report: pytest.CollectReport | pytest.TestReport) -> tuple[str, str, str] | None:
        """Count what is not written apart from the failures, each of which takes several lines."""
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
            told = item.config.getoption("tbstyle") != "line"  # else pytest prints the place alone
            report.longrepr = ResultText(item.stash[RESULT], place, self, told)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """A test module that cannot be imported: nearly always because of an error in the student's files."""
        report = yield
        if (call := getattr(report, "call", None)) and call.excinfo is not None and report.failed:
            error = call.excinfo.value.__cause__ or call.excinfo.value
            failure = describe(error, collector.config.rootpath)
            report.longrepr = Text(failure.headline, failure.details, (collector.nodeid, 1))
        return report

    @pytest.hookimpl(tryfirst=True)  # before the failures are printed
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self.debugged and not all(result.passed for result in self.results):
            import adapters  # the tests have imported it

            root, suites = session.config.rootpath, session.config.getini("suites")
            tell = partial(self._tell_of_time, root, "The examination of what failed")
            with suppress(SuiteError), watchdog(LONG, tell):  # pytest reports a file that cannot be imported
                self.explanations += explain(load_suite(root, suites, self.problems, adapters), self.results)
            if isinstance(capture := session.config.pluginmanager.getplugin("capturemanager"), CaptureManager):
                capture.read_global_capture()  # printed into a stream of pytest's that the student's files have kept

    @pytest.hookimpl(specname="pytest_sessionfinish", wrapper=True, tryfirst=True)
    def pytest_say_what_is_next(self, session: pytest.Session) -> Generator[None]:
        """Say in the very last line where something is to be written."""
        yield
        unwritten = next((result for result in self.results if result.check is Check.NOT_WRITTEN), None)
        if unwritten and (terminal := session.config.pluginmanager.get_plugin("terminalreporter")):
            if not any(result.passed for result in self.results):
                terminal.line("To begin:  uv run cs336 check", bold=True)
            place = begin_at(session.config.rootpath, self.problems[unwritten.problem])
            terminal.line(f"Now open:  {place}", bold=True)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Below the failures, the last thing that is read: what explains them, and what to write next."""
        root = terminalreporter.config.rootpath
        if not terminalreporter.stats and terminalreporter.config.invocation_params.dir != root:
            terminalreporter.line(f"There are no tests here. To run them:  cd {root}")
        failed = [result for result in self.results if not result.passed]
        shown = {line.strip() for result in failed for line in result.details}  # where an exception was raised
        if len(headlines := {result.headline for result in failed}) == 1:  # of several, an explanation says which
            shown |= headlines
        for problem in dict.fromkeys(explanation.problem for explanation in self.explanations):
            terminalreporter.section(f"What your code does: {problem}", yellow=True)
            for number, explanation in enumerate(e for e in self.explanations if e.problem == problem):
                if number:
                    terminalreporter.line("")
                for line in wrapped(said_once(explanation.lines, shown), WIDTH):
                    terminalreporter.line(line, bold=True)
        if told := not_own_work(root, self.problems, self.seen):
            terminalreporter.section(told[0], yellow=True)
            for line in wrapped(told[1:], WIDTH):
                terminalreporter.line(line)
        if unwritten := [result for result in self.results if result.check is Check.NOT_WRITTEN]:
            terminalreporter.section(NOT_WRITTEN.capitalize(), yellow=True)
            tests = Counter(result.problem for result in unwritten)
            for result in reversed({result.problem: result for result in reversed(unwritten)}.values()):
                place = result.headline.rpartition(" in ")[2]
                count = f"{tests[result.problem]} test{'s' * (tests[result.problem] > 1)}"
                terminalreporter.line(f"{result.problem:<30} {count:<9} {place}")


class Text(TerminalRepr):
    """An explanation of what went wrong, as pytest prints it."""

    def __init__(self, headline: str, details: Iterable[str], place: tuple[str, int]) -> None:
        self.headline = headline
        self.details = details
        self.reprcrash = ReprFileLocation(*place, headline)  # pytest's short summary reads this

    def toterminal(self, tw: TerminalWriter) -> None:
        for line in wrapped([self.headline], WIDTH):
            tw.line(line.strip(), red=True, bold=True)
        for line in wrapped(self.details, WIDTH, "  "):
            tw.line(line)


class ResultText(Text):
    """One result; where nothing explains its problem, the smallest wrong row stands below it.

    Args:
        runs: has the explanations by the time this is printed.
        told: whether it is printed at all.
    """

    def __init__(self, result: Result, place: tuple[str, int], runs: EngineRuns, told: bool) -> None:
        super().__init__(result.headline, result.details, place)
        self.result = result
        self.runs = runs
        self.told = told

    def toterminal(self, tw: TerminalWriter) -> None:
        if not self.told:
            return
        super().toterminal(tw)
        explained = any(explanation.problem == self.result.problem for explanation in self.runs.explanations)
        examined = () if self.runs.debugged else ("No experiment explains it.",)
        on_paper = () if explained or not self.result.on_paper else (*examined, *self.result.on_paper)
        for lines in filter(None, (on_paper, self.result.inputs)):
            tw.line()
            for line in wrapped(lines, WIDTH, "  "):
                tw.line(line)


def _is_ours(item: pytest.Item | pytest.FixtureRequest) -> bool:
    return _is_in_suite(item.path, item.config)


def _is_in_suite(path: Path, config: pytest.Config) -> bool:
    return any(path.is_relative_to(suite) for suite in config.getini("suites"))
