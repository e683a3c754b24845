"""The suites that a class is graded with, called through a proxy, and the hash of all that decides a verdict."""

import ast
import hashlib
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from cs336_kit.engine.assignment import Problem
from cs336_kit.engine.case import UNREADABLE, case_names, load_metadata
from cs336_kit.engine.result import Outcome, Result
from cs336_kit.engine.suite import Suite, Test, load_suite, not_run
from cs336_kit.engine.toml_file import AssignmentError
from cs336_kit.rules.forbidden import HOMES, IN_KERNELS
from cs336_staff.authoring.room import FOLDER as ROOMS
from cs336_staff.authoring.room import hidden_tests, load_rooms
from cs336_staff.grading.carried_forward import CarriedForward
from cs336_staff.grading.course import Course, load_course
from cs336_staff.grading.foreseen import Requests, foresee
from cs336_staff.grading.hidden_results import for_student
from cs336_staff.hidden.release import Release, left_out_tests, load_graded_problems, load_release
from cs336_staff.sandbox.limits import Limits
from cs336_staff.sandbox.proxy import Adapters
from cs336_staff.sandbox.worker import Worker

STAFF = Path(__file__).parents[1]
# Files of words alone, which decide nothing.
WORDS = ("failure.py", "on_paper.py", "python_errors.py")


@dataclass(frozen=True)
class GradedSuite:
    """Both suites, ready to run on one submission after the other.

    Args:
        suite: the tests, public ones first: what a submission prints before it meets a hidden input may be shown.
        proxy: what the tests call.
        requests: what each test is expected to ask, by name.
        recorded: the names of the tests in which torch records what runs.
        release: where the hidden inputs come from.
        course: its limits decide verdicts; what it has muted is not told.
    """

    suite: Suite
    proxy: Adapters
    requests: Requests
    recorded: Collection[str]
    release: Release
    course: Course

    @property
    def problems(self) -> Mapping[str, Problem]:
        return self.suite.problems

    @cached_property
    def sha256(self) -> str:
        """Of everything that a verdict depends on besides the submission."""
        return _sha256(self.suite.root, self.release.cases, self.course.limits)

    def run(self, worker: Worker, tests: Iterable[Test], carried: CarriedForward | None = None) -> Iterator[Result]:
        """The result of each of `tests`, which are some of the suite's; their inputs are sent as soon as it runs.

        At each result `worker.forbidden` is what this test alone has run.

        Args:
            worker: the submission.
            tests: in their order.
            carried: what the tests before these have shown.
        """
        self.proxy.worker = worker
        tests = list(tests)
        worker.foresee([self.requests.get(test.name, ()) for test in tests])
        carried = carried or CarriedForward(self.suite)
        for test in tests:
            worker.next_test()
            worker.forbidden.clear()
            self.proxy.recorded = test.name in self.recorded
            with worker.with_memory(test.memory) if test.memory else nullcontext():
                result = self.suite.run(test)
            made, forbidden = self.suite.calls.made.copy(), worker.forbidden.copy()
            self.proxy.recorded = False
            if not result.passed:
                carried.find_faults(test, result)  # what is asked for that is no part of the test
                worker.forbidden.clear()
            result = carried.judge(test, result)
            worker.forbidden |= forbidden
            self.suite.calls.made.clear()
            self.suite.calls.made.update(made)
            yield for_student(result, worker.submission, stored=bool(test.stored)) if test.hidden else result


def load_graded_suite(root: Path, only: str | None = None) -> GradedSuite:
    """Load both suites, read and draw all that they run on, and foresee what they ask.

    Args:
        root: the folder of the assignment.
        only: the name of a test or a test function, if nothing else of the suite will be run.

    Raises:
        AssignmentError: something in `assignment.toml` is not as it should be, or the stored hidden
            cases are those of another release.
        SuiteError: a suite cannot be loaded, or does not fit the weights stated there.
    """
    torch.set_num_threads(1)  # threads do not survive the fork of each submission
    release = load_release()
    check_hidden_cases(release)
    check_public_cases(root)
    proxy = Adapters(root / "adapters.py")
    suite = load_both_suites(root, proxy)
    tests = [test for test in suite.tests if only in (None, test.name, test.function)]
    for test in tests:
        test.cases()
    recorded = draw_recorded(tests, release)
    return GradedSuite(suite, proxy, foresee(suite, tests, proxy, recorded), recorded, release, load_course(root))


def draw_recorded(tests: Iterable[Test], release: Release) -> set[str]:
    """Name a test of each problem, public or hidden, with gradients or without, that only the secret tells."""
    kinds: dict[tuple[str, bool, bool], list[str]] = {}
    for test in tests:
        if not test.memory:
            kinds.setdefault((test.problem, test.hidden, "gradients" in test.function), []).append(test.name)
    return {min(names, key=lambda name: release.seed(f"recorded {name}")) for names in kinds.values()}


def check_hidden_cases(release: Release) -> None:
    """Raise AssignmentError unless every hidden case is stored, and all are drawn from the secret of the release."""
    todo = "run `cs336 staff fixtures --hidden`"
    expected = {spec.name for room in load_rooms().values() for spec in room.hidden}
    for name in sorted({*case_names(release.cases, "**/*"), *expected}):
        try:
            if load_metadata(release.cases, name)["seed"] != release.seed(name):
                raise AssignmentError(f"the hidden case {name} is not drawn from this release's secret; {todo}")
        except UNREADABLE:
            raise AssignmentError(
                f"the hidden case {name} is missing from {release.cases} or damaged; {todo}"
            ) from None


def check_public_cases(root: Path) -> None:
    """Raise AssignmentError unless every public case is stored: a test on one that is gone would be gone, too."""
    stored = case_names(root / "fixtures", "**/*")
    expected = {spec.name for room in load_rooms().values() for spec in room.public}
    if missing := sorted(expected.difference(stored)):
        raise AssignmentError(f"fixtures/{missing[0]}.safetensors is missing; run `cs336 staff fixtures`")


def load_both_suites(root: Path, proxy: Adapters | None = None) -> Suite:
    """The public and the hidden suite; nothing is read or drawn yet. It raises as `load_graded_suite` does."""
    problems = load_graded_problems(root)
    left_out = left_out_tests(root)
    hidden = (hidden_tests(), load_release().cases)
    return load_suite(root, [root / "tests"], problems, proxy, remote=True, left_out=left_out, hidden=hidden)


def results_of_refused(suite: Suite, why: str) -> list[Result]:
    """The results of a submission that was not run."""
    return [not_run(test, f"not run: {why}", Outcome.FAILED) for test in suite.tests]


def _sha256(root: Path, hidden_cases: Path, limits: Limits) -> str:
    """Of the tests, their cases and limits, all code that draws, compares or keeps apart, and what that runs on.

    Points and weights decide no verdict: recorded results are scored with the present ones.
    """
    digest = hashlib.sha256(f"{sys.version} {torch.__version__} {limits} {HOMES} {sorted(IN_KERNELS)}".encode())
    for folder in (root / "fixtures", hidden_cases):
        for path in sorted(folder.rglob("*.safetensors")):
            digest.update(path.read_bytes())
    code = [STAFF / "grading/carried_forward.py"]
    code += sorted((root / "cs336_kit").glob("problems/*/judge.py"))
    for folder in (
        root / "tests",
        root / "cs336_kit/engine",
        root / "cs336_kit/rules",
        STAFF / "hidden",
        STAFF / "authoring",
        ROOMS,
        STAFF / "sandbox",
    ):
        code += sorted(folder.rglob("*.py"))
    for path in code:
        if path.name not in WORDS:
            digest.update(f"{path.name} {without_words(path.read_text(encoding='utf-8'))}".encode())
    return digest.hexdigest()


def without_words(source: str) -> str:
    """Source code without comments, docstrings and the messages of exceptions."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for inside in ast.walk(node.exc):
                if isinstance(inside, ast.Constant) and isinstance(inside.value, str):
                    inside.value = ""
    return ast.dump(tree)
