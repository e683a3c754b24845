"""The collected suite: public and hidden tests, with a proxy in the place of the student's `adapters`."""

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import pytest
import torch

from cs336_kit.engine.assignment import load_problems
from cs336_kit.engine.failure import naming
from cs336_kit.examination.diagnosis import load_mistakes
from cs336_kit.plugin import Diagnosis, case_of, read_cases
from cs336_staff.grading.plan import Planned, SuiteError, plan, with_hidden_tests
from cs336_staff.grading.session import KeepErrors, run
from cs336_staff.grading.verdict import Verdict
from cs336_staff.hidden.release import FOLDER as HIDDEN
from cs336_staff.hidden.release import load_release
from cs336_staff.sandbox.proxy import Adapters
from cs336_staff.sandbox.worker import Worker

# What the suite does not need, and what costs as much time as a test does.
PLUGINS_OFF = ("terminal", "cacheprovider", "logging", "warnings", "faulthandler", "unraisableexception")


@dataclass(frozen=True)
class Call:
    """A call of an adapter: its name, its arguments in order, and what came back, if anything did."""

    name: str
    arguments: tuple[Any, ...]
    answer: Any = None


class Named(TypedDict):
    """The known mistakes that explain a failed test: their ids, and lines for the student without a hidden value."""

    ids: list[str]
    lines: list[str]


class RememberingAdapters(Adapters):
    """The proxy, which remembers its last call for staff who want to see it, and what the present test has called."""

    last_call: Call | None = None

    def __init__(self, source: Path) -> None:
        super().__init__(source)
        self.called: set[str] = set()

    def call(self, name: str, *arguments: object) -> Any:
        self.called.add(name)
        self.last_call = Call(name, arguments)
        answer = super().call(name, *arguments)
        self.last_call = Call(name, arguments, answer)
        return answer


class Suite:
    """The suite, inside the pytest session that collected it.

    Attributes:
        problems: the problems by id, with public and hidden weights.
        planned: every test that a submission gets a verdict for, in the order in which they run.
        sha256: of everything that a verdict depends on besides the submission.
        seed: of the release, where the hidden inputs come from.
        items: pytest's own of each planned test, by name.
        cases: the stored case that it runs on, if it does.
        adapters: the module that the tests call.
    """

    def __init__(self, session: pytest.Session, adapters: RememberingAdapters, root: Path) -> None:
        release = load_release()
        self.problems = with_hidden_tests(load_problems(root).values(), release.weights)
        self.seed = release.seed
        self.sha256 = _sha256(root)
        self.adapters = adapters
        diagnosis = session.config.pluginmanager.get_plugin("diagnosis")
        assert isinstance(diagnosis, Diagnosis)
        self.diagnosis = diagnosis
        self.known = load_mistakes(root / "fixtures")
        # Public tests first: what a submission prints before it meets a hidden input may be shown to its student.
        number = {test: i for i, problem in enumerate(self.problems.values()) for test in problem.tests}
        items = [item for item in session.items if isinstance(item, pytest.Function)]
        items.sort(key=lambda item: (_is_hidden(item), number.get(item.originalname, 0)))
        self.planned = plan(self.problems, [(item.name, _is_hidden(item)) for item in items])
        self.items = {item.name: item for item in items}
        # What a test asks for is read, drawn and looked up here, once, and not in every fork.
        read_cases(items)
        self.cases = {item.name: case for item in items if (case := case_of(item))}
        for item in items:
            _ = item.location  # which pytest keeps
            if (called := getattr(item.module, "adapters", None)) is not adapters:
                raise SuiteError(f"{item.nodeid} calls {called}, expected the proxy")
            if examples := getattr(item.function, "cases", None):
                examples()
            known = {"case", "request"} if item.name in self.cases else set()
            if not known.issuperset(item.fixturenames):
                raise SuiteError(f"{item.nodeid} uses {', '.join(item.fixturenames)}, expected no fixture but `case`")

    def run(self, worker: Worker, tests: Iterable[Planned]) -> Iterator[tuple[Planned, Verdict]]:
        """A verdict for each of `tests`, which are some of the planned ones.

        At each verdict `adapters.called` and `worker.forbidden` are those of this test alone.
        """
        self.adapters.worker = worker
        failed: set[str] = set()  # problems of which a drawn case has failed; the search for the smallest is made once
        for test in tests:
            self.adapters.called.clear()
            worker.forbidden.clear()
            item, case = self.items[test.name], self.cases.get(test.name)
            drawn, memory = hasattr(item.function, "cases"), getattr(item.function, "memory", None)
            arguments: dict[str, Any] = {"case": case.copy()} if case else {}
            if drawn:
                arguments["search"] = test.problem not in failed
            with worker.with_memory(memory) if memory else nullcontext():
                verdict = run(item, arguments, test.hidden, worker.submission)
            if drawn and verdict.outcome != "passed":
                failed.add(test.problem)
            yield test, verdict

    def named(self) -> dict[str, Named]:
        """For tests that failed, by name: the known mistakes that explain them, once all tests have run."""
        self.diagnosis.conclude(self.known)
        failures = {name: self.diagnosis.failures.get(item.nodeid) for name, item in self.items.items()}
        return {
            name: Named(ids=[each.id for each in failure.mistakes], lines=list(naming(failure.mistakes, failure.alone)))
            for name, failure in failures.items()
            if failure and failure.mistakes
        }


def with_suite(root: Path, use: Callable[[Suite], None]) -> None:
    """Collect the suite and call `use` with it, inside the pytest session.

    Raises:
        SuiteError: the suite cannot be collected, or does not fit `assignment.toml`.
    """
    torch.set_num_threads(1)  # threads do not survive the fork of each submission
    adapters = RememberingAdapters(root / "adapters.py")
    sys.modules["adapters"] = adapters
    session = _Session(adapters, root, use)
    arguments = [
        str(root / "tests"),
        str(HIDDEN),
        f"--rootdir={root}",
        f"--config-file={root / 'pyproject.toml'}",
        "--override-ini=addopts=",
        "--disable-plugin-autoload",
        "--import-mode=importlib",
        "--capture=no",
        *(f"-pno:{name}" for name in PLUGINS_OFF),
    ]
    status = pytest.main(arguments, plugins=["cs336_kit.plugin", KeepErrors(), session])
    if session.raised is not None:
        raise session.raised
    if status != pytest.ExitCode.OK or session.broken:
        raise SuiteError("\n".join(session.broken) or f"pytest ended with {status!r} before a test was run")


class _Session:
    """A pytest plugin: instead of running the collected tests, hand them to `use`."""

    def __init__(self, adapters: RememberingAdapters, root: Path, use: Callable[[Suite], None]) -> None:
        self.adapters, self.root, self.use = adapters, root, use
        self.broken: list[str] = []
        self.raised: BaseException | None = None

    def pytest_configure(self, config: pytest.Config) -> None:
        config.option.tbstyle = "value"  # a traceback costs ten times the test, and the kit puts words in its place

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.broken.append(str(report.longrepr))

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if not self.broken:
            try:
                self.use(Suite(session, self.adapters, self.root))
            except BaseException as error:  # it goes past pytest, which would print it as its own
                self.raised = error
        return True


def _is_hidden(item: pytest.Item) -> bool:
    return item.path.is_relative_to(HIDDEN)


def _sha256(root: Path) -> str:
    """Of the tests, their cases, the points, all code that compares, names or keeps apart, and torch's version."""
    staff = HIDDEN.parent
    code = [path for folder in ("authoring", "grading", "sandbox") for path in (staff / folder).rglob("*.py")]
    files = [root / "assignment.toml", *code]
    for folder in (root / "tests", root / "fixtures", root / "cs336_kit", HIDDEN):
        files += [path for path in folder.rglob("*") if path.suffix in {".py", ".toml", ".safetensors"}]
    digest = hashlib.sha256(torch.__version__.encode())
    for path in sorted(files):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)} ".encode() + content)
    return digest.hexdigest()
