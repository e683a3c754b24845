"""The pytest plugin of the assignment: `@pytest.mark.cases`, failures in words, and verdicts for the board."""

import json
from collections.abc import Generator
from pathlib import Path

import pytest

from cs336_kit.cases import Case, case_names, load_case
from cs336_kit.failure import Failure, describe

# Tests elsewhere fail in pytest's own words.
SUITE = "tests"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("fixtures", "folder of the stored cases, relative to the root", default="fixtures")
    parser.addoption("--verdicts", metavar="FILE", help="write one JSON object a line: the plan, then each verdict")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cases(pattern): run the test on each stored case whose name matches")
    if path := config.getoption("--verdicts"):
        config.pluginmanager.register(VerdictWriter(Path(path)), "verdicts")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if marker := metafunc.definition.get_closest_marker("cases"):
        (pattern,) = marker.args
        names = case_names(_fixtures(metafunc.config), pattern)
        if not names:
            raise pytest.UsageError(f"no case matches {pattern} in {_fixtures(metafunc.config)}")
        metafunc.parametrize("case", names, ids=[name.rpartition("/")[2] for name in names], indirect=True)


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Case:
    """The stored case that this test runs on, with tensors of its own."""
    return load_case(_fixtures(request.config), request.param)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.excinfo is not None and report.failed and item.path.is_relative_to(item.config.rootpath / SUITE):
        place = (item.location[0], (item.location[1] or 0) + 1)
        case = getattr(item, "funcargs", {}).get("case")
        report.longrepr = describe(call.excinfo.value, case, item.config.rootpath, place)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A test module that cannot be imported: nearly always because of an error in the student's files."""
    report = yield
    if (call := getattr(report, "call", None)) and call.excinfo is not None and report.failed:
        error = call.excinfo.value.__cause__ or call.excinfo.value
        report.longrepr = describe(error, None, collector.config.rootpath, (collector.nodeid, 1))
    return report


class VerdictWriter:
    """Writes each verdict as soon as it is known, so that a crash loses none that came before it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _write(self, **line: object) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if isinstance(report.longrepr, Failure):
            self._write(broken=str(report.longrepr))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            test, _, case = item.name.partition("[")
            self._write(planned=item.nodeid, test=test, case=case.removesuffix("]"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.failed:
            message = report.longrepr.headline if isinstance(report.longrepr, Failure) else ""
            self._write(ran=report.nodeid, passed=report.passed, message=message)


def _fixtures(config: pytest.Config) -> Path:
    return config.rootpath / config.getini("fixtures")
