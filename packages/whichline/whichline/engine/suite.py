"""The suite as data: the tests of some folders, each with its test case and its points, and how to run one.

pytest, the watch loop, the grader and the staff's own checks all run tests through `Suite.run`.
"""

import importlib.util
import inspect
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any, Protocol

from whichline.engine import assignment
from whichline.engine.assignment import Problem, SuiteError, find_needs, find_tests, name_command
from whichline.engine.case import Case, CaseError, list_case_names, load_case
from whichline.engine.errors import NotWrittenError, Stopped, StudentRaised
from whichline.engine.failure import describe, shapes
from whichline.engine.on_paper import on_paper
from whichline.engine.problem_folder import is_kept, list_adapters, read_reference
from whichline.engine.result import Check, Outcome, Result, name_function


class Drawn(Protocol):
    """Test cases of one kind that are drawn from seeds; a test on them passes if it passes on each."""

    def examples(self) -> Sequence[Case]:
        """The test cases, the smallest first."""
        ...


@dataclass(frozen=True)
class Test:
    """One test, which gives one result."""

    __test__ = False  # pytest would take a class of this name for one of tests

    name: str  # the test function, with its test case in brackets
    call: Callable[..., None]  # the test function itself
    place: tuple[str, int]  # its file and line
    hidden: bool = False  # whether students must not learn its inputs
    stored: Callable[[], Case] | None = None  # reads its fixture, if it has one
    drawn: Drawn | None = None  # its test cases, if they are drawn from seeds
    memory: int | None = None  # how many bytes of private memory the student's code may map; None for no limit
    problem: str = ""  # the id of its problem; "" if no problem counts it
    bonus: bool = False  # whether its points come on top of the maximum
    points: float = 0.0  # what it is worth

    @property
    def function(self) -> str:
        """The test function alone."""
        return name_function(self.name)

    @property
    def parameter(self) -> str:
        """The test case in the brackets of its name, or ""."""
        return self.name.partition("[")[2].removesuffix("]")

    def cases(self) -> Sequence[Case]:
        """Read its test cases, none if it makes its own inputs; CaseError if a file is missing or damaged."""
        if self.drawn:
            return self.drawn.examples()
        return [self.stored()] if self.stored else []


@dataclass
class Calls:
    """The module `adapters` as the tests import it: it counts calls, and the adapters behind it can be replaced."""

    adapters: Any = None
    made: Counter[str] = field(default_factory=Counter)  # calls, by the name of the function

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # since Python 3.13, `import adapters` asks for __spec__
        self.made[name] += 1
        try:
            return getattr(self.adapters, name)
        except AttributeError:
            raise NotWrittenError(f"write {name} in adapters.py") from None


@dataclass(frozen=True)
class Suite:
    """Tests, and the problems that they belong to."""

    root: Path  # the folder of the assignment
    problems: Mapping[str, Problem]  # by id
    tests: Sequence[Test]  # in the order in which they should run
    calls: Calls  # the adapters that they call
    remote: bool = False  # whether the student's code runs in another process; an error outside of it is ours
    cell: str = ""  # the file, in any folder, of a function that replaces an adapter: a cell of a notebook

    def has_written(self, file: str) -> bool:
        """Tell whether a file is the student's."""
        return file == self.cell or assignment.is_own_file(file, self.root)

    def bind(self, run: Callable[..., Any], given: Sequence[Any], named: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments of a call of an adapter, by name, also those that it takes in `**kwargs`."""
        signature = inspect.signature(run)
        arguments = signature.bind(*given, **named).arguments
        rest = [each.name for each in signature.parameters.values() if each.kind is each.VAR_KEYWORD]
        return arguments | arguments.pop(rest[0], {}) if rest else arguments

    def list_needed(self, problem: str) -> dict[str, str]:
        """The adapters of the problems that a problem builds on; each has its problem's id."""
        needs = find_needs(self.problems, problem) if problem in self.problems else ()
        return {adapter: need for need in needs for adapter in list_adapters(need)}

    def run(self, test: Test) -> Result:
        self.calls.made.clear()
        return run(test, self.root, remote=self.remote, calls=self.calls.made.total)

    def make_test(self, name: str, problem: str, case: Case) -> Test:
        """Make a test of the output, and of the gradients if they are known, on a test case that is in no file."""

        def check(case: Case) -> None:
            case.require_gradients()
            answer = getattr(self.calls, case.call)(**case.inputs)
            (case.check_gradients if case.gradients else case.check)(answer)

        return Test(name, check, (__file__, 0), stored=lambda: case, problem=problem)

    def ending(self, test: Test) -> BaseException | None:
        """Run one test and return the exception that ended it, if there is one."""
        return _ending(test)[0]


def load_suite(
    root: Path,
    folders: Iterable[Path],
    problems: Mapping[str, Problem],
    adapters: Any = None,
    remote: bool = False,
    hidden: tuple[Sequence[Path], Path] | None = None,
) -> Suite:
    """Load the tests in some folders that problems count, in the order of the problems, public ones first.

    A file in which no test counts is not imported. The tests call `adapters`, a module that may be set later, as
    `suite.calls.adapters`. The files of the hidden tests, and the folder of their fixtures, are in `hidden`. SuiteError
    if a test file cannot be imported, a test has a wrong parameter, or a problem has no reference.
    """
    for problem in problems:
        list_adapters(problem)
    calls = Calls(adapters)
    hidden_files, hidden_cases = hidden or ((), None)
    files = find_tests(folders, problems.values(), hidden_files)
    found: list[Test] = []
    for path in dict.fromkeys(files.values()):
        cases = hidden_cases if path in hidden_files else None
        for name, call in vars(_import_module(path, calls)).items():
            if files.get(name) == path and inspect.isfunction(call):
                found += expand(name, call, root, cases)
    return Suite(root, problems, add_points(found, problems), calls, remote)


def expand(name: str, call: Callable[..., None], root: Path, hidden_cases: Path | None = None) -> list[Test]:
    """The tests of a test function: one for each fixture, or for each kind of drawn test cases, in its mark `cases`.

    The fixtures of a hidden test are in `hidden_cases`, those of a public test in `root`. SuiteError if no fixture
    matches, or the function has a wrong parameter.
    """
    code = inspect.unwrap(call).__code__
    path = Path(code.co_filename)
    place = (path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name, code.co_firstlineno)
    marks = {mark.name: mark.args[0] for mark in getattr(call, "pytestmark", ()) if mark.name in ("cases", "memory")}
    test = Test(name, call, place, hidden=hidden_cases is not None, memory=marks.get("memory"))
    if (asks := [*inspect.signature(call).parameters]) != ["case"] * ("cases" in marks):
        what = f"{name} asks for {', '.join(asks) or 'nothing'}"
        raise SuiteError(f"{place[0]}:{place[1]}: {what}; a test gets `case` with the mark `cases`, otherwise nothing")
    match marks.get("cases"):
        case None:
            return [test]
        case str(pattern):
            fixtures = hidden_cases or root / "fixtures"
            if not (stored := list_case_names(fixtures, pattern)):
                raise SuiteError(f"no case matches {pattern} in {fixtures}")
            return [
                replace(test, name=f"{name}[{case.rpartition('/')[2]}]", stored=partial(load_case, fixtures, case))
                for case in stored
            ]
        case kinds:
            return [replace(test, name=f"{name}[{kind}]", drawn=drawn) for kind, drawn in kinds.items()]


def add_points(tests: Sequence[Test], problems: Mapping[str, Problem]) -> list[Test]:
    """The tests in the order of their problems, public ones first, each with its points.

    The test functions of a problem share its points by weight; the tests of one function share them evenly.
    """
    homes = {name: problem for problem in problems.values() for name in problem.tests}
    count = Counter(test.function for test in tests)
    order = {id: number for number, id in enumerate(problems)}

    def worth(test: Test) -> Test:
        if not (problem := homes.get(test.function)):
            return test
        points = problem.worth(test.function) / count[test.function]
        return replace(test, problem=problem.id, bonus=problem.bonus, points=points)

    return sorted(map(worth, tests), key=lambda test: (test.hidden, order.get(test.problem, len(order))))


def run(test: Test, root: Path, *, remote: bool = False, calls: Callable[[], int] = lambda: 0) -> Result:
    """Run a test on its test cases and return the result; Ctrl-C reaches the caller."""
    started = time.process_time()
    error, case = _ending(test)
    about = (test.name, test.problem, test.hidden, test.bonus, test.points)
    result = Result(*about, Outcome.PASSED, calls=calls(), seconds=time.process_time() - started)
    if error is None:
        return result
    known = isinstance(error, AssertionError | NotWrittenError | StudentRaised | Stopped | CaseError)
    unforeseen = not known and not remote and _is_raised_here(error)
    failure = describe(error, root, unforeseen)
    is_written = failure.check is not Check.NOT_WRITTEN
    ours = isinstance(error, CaseError) or unforeseen or (remote and not known)
    error.with_traceback(None)  # its frames would hold the tensors of the test until garbage is collected
    return replace(
        result,
        **vars(failure),
        outcome=Outcome.ERROR if ours else getattr(error, "outcome", Outcome.FAILED),
        on_paper=on_paper(test.problem, case, error) if case and test.problem and not test.hidden else (),
        inputs=shapes(case, test.hidden) if case and is_written else (),
        see=_name_lab(case, test) if case and is_written else "",
    )


def not_run(test: Test, why: str, outcome: Outcome = Outcome.NOT_RUN) -> Result:
    """The result of a test that did not run."""
    return Result(test.name, test.problem, test.hidden, test.bonus, test.points, outcome, Check.CALL, why)


def _ending(test: Test) -> tuple[BaseException | None, Case | None]:
    """Run a test and return the exception that ended it, with the test case that it was on."""
    case = None
    try:
        if not (test.stored or test.drawn):
            test.call()
        for case in (one.copy() for one in test.cases()):
            test.call(case)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return error, case
    return None, None


def _is_raised_here(error: BaseException) -> bool:
    """Tell whether an error is the engine's own.

    Two files raise errors of the student's: `annotations.py`, if a call does not fit the student's function, and
    `as_graded.py`, if the code does what grading refuses.
    """
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    where = Path(frames[-1].f_code.co_filename) if frames else Path()
    return where.is_relative_to(Path(__file__).parents[1]) and where.name not in ("annotations.py", "as_graded.py")


def _name_lab(case: Case, test: Test) -> str:
    """The command that shows the call line by line, if its reference ships."""
    is_followed = test.stored and not test.hidden and test.problem and case.call in list_adapters(test.problem)
    is_followed = is_followed and not is_kept(test.problem, read_reference(test.problem))
    return name_command(f"debug --case {case.name}") if is_followed else ""


def _import_module(path: Path, calls: Calls) -> ModuleType:
    """Import the module in a file, with `calls` as its `adapters`."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}.{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get("adapters")
    sys.modules["adapters"] = calls  # type: ignore[assignment]  (a module is whatever `import` finds there)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise SuiteError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        del sys.modules["adapters"]
        if before is not None:
            sys.modules["adapters"] = before
    return module
