"""The pytest plugin of the assignment: `@pytest.mark.cases`, failures in words, and verdicts for the board."""

import json
from collections import defaultdict
from collections.abc import Generator, Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from cs336_kit.engine.case import Case, CaseError, case_names, load_case
from cs336_kit.engine.failure import Failure, describe, naming, shows_an_answer
from cs336_kit.examination.diagnosis import Evidence, Mistake, explain, load_mistakes, look, suspect


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("fixtures", "folder of the stored cases, relative to the root", default="fixtures")
    parser.addini("suites", "folders whose failures are put in words", type="paths")
    parser.addoption("--verdicts", metavar="FILE", help="write one JSON object a line: the plan, then each verdict")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cases(pattern): run the test on each stored case whose name matches")
    diagnosis = Diagnosis()
    config.pluginmanager.register(diagnosis, "diagnosis")
    if path := config.getoption("--verdicts"):
        config.pluginmanager.register(VerdictWriter(Path(path), diagnosis), "verdicts")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if marker := metafunc.definition.get_closest_marker("cases"):
        (pattern,) = marker.args
        fixtures = _fixtures(metafunc.definition)
        names = case_names(fixtures, pattern)
        if not names:
            raise pytest.UsageError(f"no case matches {pattern} in {fixtures}")
        metafunc.parametrize("case", names, ids=[name.rpartition("/")[2] for name in names], indirect=True)


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Case:
    """The stored case that this test runs on, with tensors of its own."""
    return load_case(_fixtures(request.node), request.param)


def case_of(item: pytest.Item) -> Case | None:
    """The stored case that a collected test will run on, if it runs on one.

    Raises:
        CaseError: the file is missing or damaged.
    """
    name = item.callspec.params.get("case") if isinstance(item, pytest.Function) and hasattr(item, "callspec") else None
    return None if name is None else load_case(_fixtures(item), str(name))


def read_cases(items: Iterable[pytest.Item]) -> None:
    """Read what the tests will ask for, the answers of known mistakes among it, ahead of time."""
    for item in items:
        with suppress(CaseError):  # the test says so when it runs
            if case := case_of(item):
                case.wrong()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A test module that cannot be imported: nearly always because of an error in the student's files."""
    report = yield
    if (call := getattr(report, "call", None)) and call.excinfo is not None and report.failed:
        error = call.excinfo.value.__cause__ or call.excinfo.value
        report.longrepr = describe(error, None, None, collector.config.rootpath, (collector.nodeid, 1))
    return report


class Diagnosis:
    """Names the mistakes when the run has ended, from what all its tests say.

    Attributes:
        evidence: one for each test that ran on a case.
        failures: by the id of the test.
        explained: for each family of cases in which something failed, the ids of the mistakes that explain it.
    """

    def __init__(self) -> None:
        self.evidence: list[Evidence] = []
        self.failures: dict[str, Failure] = {}
        self.explained: dict[str, list[str]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if not any(item.path.is_relative_to(suite) for suite in item.config.getini("suites")):
            return report
        error = call.excinfo.value if call.excinfo is not None and report.failed else None
        case = getattr(error, "case", getattr(item, "funcargs", {}).get("case"))
        evidence = None
        if isinstance(case, Case) and call.when == "call" and shows_an_answer(error, item.config.rootpath):
            evidence = look(case, error)
            self.evidence.append(evidence)
        if error is not None:
            place = (item.location[0], (item.location[1] or 0) + 1)
            failure = describe(error, case, evidence, item.config.rootpath, place)
            report.longrepr = self.failures[item.nodeid] = failure
        return report

    @pytest.hookimpl(tryfirst=True)  # before the failures are printed and the verdicts are closed
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.conclude(load_mistakes(session.config.rootpath / session.config.getini("fixtures")))

    def conclude(self, known: dict[str, Mistake]) -> None:
        """Give every failure its mistakes, now that all tests have run."""
        families: dict[str, list[Evidence]] = defaultdict(list)
        for evidence in self.evidence:
            families[evidence.case.family].append(evidence)
        self.explained = {
            family: explain(found, self.evidence)
            for family, found in families.items()
            if not all(evidence.passed for evidence in found)
        }
        for failure in self.failures.values():
            evidence = failure.evidence
            if evidence is None:
                continue
            family = evidence.case.family
            sure = [id for id in self.explained[family] if id in evidence.fits]
            failure.alone = not sure
            failure.mistakes = [known[id] for id in sure or suspect(evidence, families[family])]


class VerdictWriter:
    """Writes each verdict as soon as it is known, so that a crash loses none that came before it."""

    def __init__(self, path: Path, diagnosis: Diagnosis) -> None:
        self.path = path
        self.diagnosis = diagnosis

    def _write(self, **line: object) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if isinstance(report.longrepr, Failure):
            self.broken(report.longrepr)

    def broken(self, failure: Failure) -> None:
        """Nothing can be run, since the student's files cannot be imported."""
        self._write(broken=str(failure))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            test, _, case = item.name.partition("[")
            self._write(planned=item.nodeid, test=test, case=case.removesuffix("]"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.failed:
            failure = report.longrepr if isinstance(report.longrepr, Failure) else None
            message = failure.headline if failure else ""
            details = "\n".join(failure.details) if failure else ""
            self._write(ran=report.nodeid, passed=report.passed, message=message, details=details)

    def pytest_sessionfinish(self) -> None:
        for test, failure in self.diagnosis.failures.items():
            if failure.mistakes:
                named = [mistake.id for mistake in failure.mistakes]
                self._write(named=test, mistakes=named, lines=list(naming(failure.mistakes, failure.alone)))


def _fixtures(item: pytest.Item) -> Path:
    """The folder `fixtures` beside the test, if there is one; else that of the assignment."""
    beside = item.path.parent / "fixtures"
    return beside if beside.is_dir() else item.config.rootpath / item.config.getini("fixtures")
