"""The suites that a class is graded with, called through a proxy, and the hash of all that decides a verdict."""

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from types import CodeType

import torch

from whichline.engine.assignment import FILE_NAME, PROBLEMS, Problem, SuiteError, get_root, name_command
from whichline.engine.case import UNREADABLE, list_case_names, load_metadata
from whichline.engine.result import Outcome, Result
from whichline.engine.suite import Suite, Test, load_suite, not_run
from whichline.engine.toml_file import AssignmentError
from whichline.rules.forbidden import load_forbidden
from whichline_grader.authoring.spec import Figure, load_specs
from whichline_grader.grading.course import Course, load_course
from whichline_grader.grading.transcripts import Provenance, Recorder, RemoteCalls, Replayer
from whichline_grader.hidden.release import Release, load_graded_problems, load_release
from whichline_grader.paths import ENGINE, GRADER, find_hidden_tests
from whichline_grader.sandbox.inside.randomness import seed
from whichline_grader.sandbox.proxy import Adapters, Respondent
from whichline_grader.sandbox.remote_call import RemoteCall
from whichline_grader.sandbox.reply import NotAsked
from whichline_grader.sandbox.submission import Submission

# Code that may change a reply of a worker, and code that may change an outcome besides that.
ASKS = (ENGINE / "rules", GRADER / "sandbox", GRADER / "grading/transcripts.py")
JUDGES = (
    *(ENGINE / "engine", GRADER / "authoring", GRADER / "hidden"),
    *(GRADER / "grading" / name for name in ("carried_forward.py", "one_submission.py", "suite.py")),
)
RECORD_TIMES, WORDS_BYTES = 4, 2 << 20  # wider numbers than the right ones, all of them asked twice


@dataclass(frozen=True)
class GradedSuite:
    """Both suites, ready to run on the answers of one submission after the other."""

    suite: Suite  # the tests, public ones first: what a submission prints before it meets a hidden input may be shown
    proxy: Adapters  # what the tests call
    remote_calls: RemoteCalls  # of each test, and of what is asked where one fails, by name; in the order of asking
    release: Release  # where the hidden inputs come from
    course: Course  # its limits decide verdicts; what it has muted is not told

    @property
    def problems(self) -> Mapping[str, Problem]:
        return self.suite.problems

    @cached_property
    def _asking_code(self) -> str:
        return hash_code(ASKS)

    @cached_property
    def asked_sha256(self) -> str:
        """Of everything that an answer depends on besides the submission."""
        digest = sha256(f"{self._asking_code} {sys.version} {torch.__version__} {self.course.limits}".encode())
        for name, remote_calls in self.remote_calls.items():
            digest.update(name.encode())
            for remote_call in remote_calls:
                remote_call.hash_into(digest)
        return digest.hexdigest()

    def compute_provenance(self, content: str) -> Provenance:
        """What the answers of a submission with this content belong to."""
        return Provenance(content, self.release.seed("release"), self.asked_sha256)

    @cached_property
    def record_bytes(self) -> int:
        """The most that the record of a submission's answers may have: more than right answers take, and words."""
        numbers = sum(asked.right_bytes for remote_calls in self.remote_calls.values() for asked in remote_calls)
        return RECORD_TIMES * numbers + WORDS_BYTES

    @cached_property
    def sha256(self) -> str:
        """Of the tests, their cases and limits, and the code that may change an outcome.

        Points and weights change none: recorded results are scored with the present ones.
        """
        root = self.suite.root
        rules = load_forbidden(get_root() / FILE_NAME)
        stated = (rules.allowed, rules.homes, sorted(rules.in_kernels), sorted(rules.late))
        settings = f"{hash_code(JUDGES)} {self.course.limits} {stated}"
        digest = sha256(f"{self._asking_code} {sys.version} {torch.__version__} {settings}".encode())
        cases = (root / "fixtures", self.release.cases)
        paths = [path for folder in cases for path in sorted(folder.rglob("*.safetensors"))]
        paths += [path for folder in ("tests", PROBLEMS) for path in sorted((root / folder).rglob("*.py"))]
        for path in paths:
            digest.update(path.name.encode() + path.read_bytes())
        return digest.hexdigest()

    def choose(self, names: Collection[str]) -> RemoteCalls:
        """The questions of these names, in the order in which they are asked."""
        return {name: each for name, each in self.remote_calls.items() if name in names}

    def run(self, test: Test, recorded: Replayer, answered: str = "") -> Result:
        """Run a test on recorded answers, which may have another name."""
        recorded.start(test.name, answered)
        self._prepare(test, recorded)
        return self.suite.run(test)

    def record(self, test: Test) -> tuple[Recorder, Result]:
        """Run a test on the answers of a right program, and write down what it asks."""
        recorder = Recorder(test.memory)
        self._prepare(test, recorder)
        return recorder, self.suite.run(test)

    def check_recorder(self, test: Test, recorder: Recorder, result: Result) -> None:
        """Raise SuiteError unless a right program passes a test, whose calls are the same when its digits differ."""
        if not result.passed:
            raise SuiteError(f"a right program fails {test.name}: {result.headline}")
        answers = {test.name: recorder.rounded_otherwise}
        recorded = Replayer({test.name: recorder.remote_calls}, answers, Submission("a right program", {}, ""))
        recorded.start(test.name)
        self._prepare(test, recorded)
        if isinstance(ended := self.suite.ending(test), NotAsked):
            why = "it may call with what it has, what it draws, or what an earlier call gave, as it is"
            raise SuiteError(f"{test.name} makes other calls when it is run again: {ended}; {why}")

    def _prepare(self, test: Test, respondent: Respondent) -> None:
        """Have somebody answer a test, which draws the same random numbers each time."""
        number = self.release.seed(f"random numbers of {test.name}")
        seed((number, number, number))
        self.proxy.respondent = respondent


def load_graded_suite(root: Path, only: str | None = None) -> GradedSuite:
    """Load both suites, or `only` one test or test function; read and draw their cases, and write down what they ask.

    AssignmentError for errors in `assignment.toml`, or hidden cases of another release; SuiteError if a suite cannot be
    loaded, does not fit its weights, or has a test that a right program would fail.
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
    remote_calls: dict[str, Sequence[RemoteCall]] = {}
    graded = GradedSuite(suite, proxy, remote_calls, release, load_course(root))
    for test in sorted(tests, key=lambda test: release.seed(f"order {test.name}")):  # which nobody knows
        recorder, result = graded.record(test)
        remote_calls[test.name] = recorder.remote_calls
        if not test.memory:  # which no rehearsal has
            graded.check_recorder(test, recorder, result)
    for problem, spec in load_specs().items() if only is None else ():
        if spec.figure and problem in suite.problems:
            proxy.respondent = recorder = Recorder()
            spec.figure.measure(getattr(suite.calls, spec.figure.call))
            remote_calls[name_figure(spec.figure)] = recorder.remote_calls
    proxy.respondent = None
    _ = graded.asked_sha256  # here, and so in no fork
    return graded


def hash_code(paths: Iterable[Path]) -> str:
    """Hash the Python code of files and folders, without comments, docstrings and line numbers."""
    digest = sha256()
    for path in paths:
        for file in sorted(path.rglob("*.py")) if path.is_dir() else (path,):
            code = compile(file.read_bytes(), "", "exec", dont_inherit=True, optimize=2)
            digest.update(repr((file.name, _list_parts(code))).encode())
    return digest.hexdigest()


def _list_parts(constant: object) -> object:
    """List what a code object does; the order of a set's members would change from process to process."""
    if isinstance(constant, frozenset):
        return sorted(map(repr, constant))
    if not isinstance(constant, CodeType):
        return constant
    names = constant.co_names, constant.co_varnames, constant.co_freevars, constant.co_cellvars
    counts = constant.co_argcount, constant.co_posonlyargcount, constant.co_kwonlyargcount, constant.co_flags
    parts = constant.co_code, constant.co_exceptiontable, *map(_list_parts, constant.co_consts)
    return constant.co_name, names, counts, parts


def name_figure(figure: Figure) -> str:
    return f"figure of {figure.call}"


def check_hidden_cases(release: Release) -> None:
    """Raise AssignmentError unless every hidden case is stored, and all are drawn from the secret of the release."""
    todo = f"run `{name_command('staff verify --write')}`"
    expected = {case.name for spec in load_specs().values() for case in spec.hidden}
    for name in sorted({*list_case_names(release.cases, "**/*"), *expected}):
        try:
            if load_metadata(release.cases, name)["seed"] != release.seed(name):
                raise AssignmentError(f"the hidden case {name} is not drawn from this release's secret; {todo}")
        except UNREADABLE:
            what = f"the hidden case {name} is missing from {release.cases} or damaged"
            raise AssignmentError(f"{what}; {todo}") from None


def check_public_cases(root: Path) -> None:
    """Raise AssignmentError unless every public case is stored: a test on one that is gone would be gone, too."""
    expected = {case.name for spec in load_specs().values() for case in spec.public}
    if missing := sorted(expected.difference(list_case_names(root / "fixtures", "**/*"))):
        todo = f"run `{name_command('staff verify --write')}`"
        raise AssignmentError(f"fixtures/{missing[0]}.safetensors is missing; {todo}")


def load_both_suites(root: Path, proxy: Adapters | None = None) -> Suite:
    """The public and the hidden suite; nothing is read or drawn yet. It raises as `load_graded_suite` does."""
    hidden = ([find_hidden_tests(get_root(), id) for id in load_specs()], load_release().cases)
    return load_suite(root, [root / "tests"], load_graded_problems(root), proxy, remote=True, hidden=hidden)


def list_refused_results(suite: Suite, why: str) -> list[Result]:
    return [not_run(test, f"not run: {why}", Outcome.FAILED) for test in suite.tests]
