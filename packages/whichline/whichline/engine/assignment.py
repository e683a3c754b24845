"""The problems of the assignment, as `assignment.toml` states them."""

import difflib
import keyword
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path, PurePath
from typing import Literal

from whichline.engine.errors import CourseworkError
from whichline.engine.toml_file import AssignmentError, Complaint, locate_error, read_toml

FILE_NAME = "assignment.toml"
ADAPTERS = "adapters.py"
A_NAME = "lower-case letters, digits and _, and not a word of Python's"
IS_TEST = re.compile(r"(test_.*|conftest)\.py")
INSTALLED = ("site-packages", "dist-packages", "node_modules", "__pycache__")
GIVEN_FOLDERS = ("kit", "staff")  # only the solved tree has the second
PROBLEMS = "problems"  # a package at the root; students have their part of it in the kit

FeedbackLevel = Literal["where", "what", "tests"]


class SuiteError(CourseworkError):
    """The suite cannot be used; the message says what is wrong with it."""


@dataclass(frozen=True)
class Problem:
    id: str  # its name on the command line
    title: str  # its name for people
    points: float  # the most that it is worth
    files: tuple[str, ...]  # which the student writes, relative to the root
    # The weight of each test function; its test cases share it evenly. If none is stated, all test functions in
    # `tests/test_ID.py` or `test_N_ID.py` have the same weight.
    tests: dict[str, float] = field(default_factory=dict)
    hints: tuple[str, ...] = ()  # the first is a question, the last says where to look
    bonus: bool = False  # whether its points come on top of the maximum
    left_out: bool = False  # whether this course does without it
    needs: tuple[str, ...] = ()  # the ids of the earlier problems that it builds on
    hidden: dict[str, float] = field(default_factory=dict)  # the weights of its hidden tests
    # A regular expression for the beginning of the names of torch's functions that do what the student should write.
    # They are forbidden, and a submission that uses one loses points of this problem.
    work: str = ""
    beside: tuple[str, ...] = ()  # other files that only this problem needs: given, or written and not graded
    in_kernels: bool = False  # whether torch's own C++ code may do this work without a call from Python
    feedback: FeedbackLevel | None = None  # how much students learn about a mistake; None: what the assignment says

    def worth(self, test: str) -> float:
        """The points of a test function."""
        return self.points * self.tests[test] / sum(self.tests.values())


@dataclass(frozen=True)
class Command:
    """A command that this assignment adds to those of every assignment."""

    name: str  # on the command line; it replaces a command of the same name
    function: str  # its place, "module:function"
    help: str  # a few words about it


@dataclass(frozen=True)
class Assignment:
    """The content of `assignment.toml`."""

    command: str  # the name of the command, as in `uv run NAME check`
    package: str  # the folder of the student's code, a Python package; the distribution has this name, too
    points: float  # what all problems without a bonus are worth
    problem: tuple[Problem, ...]  # in the order in which students solve them
    commands: tuple[Command, ...] = ()  # that only this assignment has
    # Students may use these of torch.nn, torch.nn.functional and einops.layers; * and ? are wildcards.
    allowed: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()  # operators that torch registers on import only, by their names in torch.ops
    # What submissions may import besides torch, numpy, einops and jaxtyping; the grading machine must have it.
    packages: tuple[str, ...] = ()
    # Students learn the line of a mistake and what is wrong ("where"), only what is wrong ("what"), or only what the
    # tests say ("tests").
    feedback: FeedbackLevel = "where"

    @property
    def in_kit(self) -> set[str]:
        """The folders at the root that students have in their kit: the problems, and those with its own commands."""
        return {PROBLEMS, *(command.function.partition(".")[0] for command in self.commands)}

    def check(self) -> Iterator[Complaint]:
        """Say where two problems contradict each other, or points belong to no test."""
        for key in ("command", "package"):
            if not is_name(name := getattr(self, key)):
                yield Complaint((key,), f"is {name!r}, expected {A_NAME}")
        yield from self._check_problems()
        if not math.isclose(required := sum(each.points for each in self.problem if not each.bonus), self.points):
            what = f"is {self.points:g}, but the problems without `bonus = true` are worth {required:g}: which is it?"
            yield Complaint(("points",), what)

    def _check_problems(self) -> Iterator[Complaint]:
        seen: set[str] = set()
        earlier: dict[str, Problem] = {}
        for number, problem in enumerate(self.problem):
            key = ("problem", number)
            if not is_name(problem.id):
                what = f"is {problem.id!r}, which names a package in problems/: expected {A_NAME}"
                yield Complaint((*key, "id"), what)
            try:
                re.compile(problem.work)
            except re.error as error:
                yield Complaint((*key, "work"), f"is not a regular expression: {error}")
            if problem.tests and sum(problem.tests.values()) == 0:
                yield Complaint((*key, "tests"), f"of {problem.id} gives no test a weight")
            tests = [(test, (kind, test)) for kind in ("tests", "hidden") for test in getattr(problem, kind)]
            for name, place in ((problem.id, ("id",)), *tests):
                if name in seen:
                    yield Complaint((*key, *place), f"{name} is there twice" if place == ("id",) else "is there twice")
                seen.add(name)
            for id in problem.needs:
                if id not in earlier:
                    yield Complaint((*key, "needs"), f"names {id}, which is not an earlier problem")
                elif earlier[id].left_out and not problem.left_out:
                    also = ", ".join(self._find_dependent())
                    yield Complaint((*key, "needs"), f"names {id}, which is left out: leave out {also} too")
            earlier[problem.id] = problem

    def _find_dependent(self) -> Iterator[str]:
        """The problems that need, directly or not, one that is left out."""
        gone = {problem.id for problem in self.problem if problem.left_out}
        for problem in self.problem:
            if problem.id not in gone and gone.intersection(problem.needs):
                gone.add(problem.id)
                yield problem.id


def is_name(text: str) -> bool:
    """Tell whether a Python package can have this name, on every system."""
    return bool(re.fullmatch(r"[a-z][a-z0-9_]*", text)) and not keyword.iskeyword(text)


def _weigh(root: Path, problem: Problem) -> Problem:
    """The problem with the same weight for each of its public tests, if it states none."""
    files = (root / "tests").glob(f"test_*{problem.id}.py")
    own = (path for path in files if re.fullmatch(rf"test_(\d+_)?{problem.id}\.py", path.name))
    return replace(problem, tests=problem.tests or dict.fromkeys(sorted(list_test_names(own)), 1.0))


def find_root(start: Path) -> Path:
    """The nearest folder at or above `start` that holds `assignment.toml`; AssignmentError if none does."""
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file():
            return folder
    raise AssignmentError(f"no {FILE_NAME} in {start} or above it; go to the folder of the assignment and try again")


@cache
def read_assignment(root: Path) -> Assignment:
    """The assignment in a folder, as it was when this process first read it; AssignmentError if it cannot be used."""
    return _read(root)


def _read(root: Path) -> Assignment:
    assignment = read_toml(root / FILE_NAME, Assignment, Assignment.check)
    problems = tuple(_weigh(root, problem) for problem in assignment.problem)
    for number, problem in enumerate(problems):
        if not problem.tests and (root / "tests").is_dir():
            what = f"of {problem.id} is missing, and so is tests/test_{problem.id}.py"
            raise locate_error(root / FILE_NAME, Complaint(("problem", number, "tests"), what))
    return replace(assignment, problem=problems)


class _Served:
    root: Path | None = None


def serve(root: Path) -> None:
    """Make this process serve the assignment in `root`, also if it changes its working directory."""
    _Served.root = root


def get_root() -> Path:
    """The root that this process serves, or else that of the working directory; AssignmentError if that has none."""
    return _Served.root or find_root(Path.cwd())


def put_root_on_path() -> None:
    """Let Python find the packages at the root of the assignment, before others of the same name."""
    if (root := str(get_root())) not in sys.path:
        sys.path.insert(0, root)


def get_assignment() -> Assignment:
    """The assignment that this process serves; this raises as `get_root` and `read_assignment` do."""
    return read_assignment(get_root())


def name_command(command: str) -> str:
    """A command as a student types it: "uv run NAME check"."""
    return f"uv run {get_assignment().command} {command}"


def student_files() -> tuple[str, str]:
    """Name the file and the folder that students write; the rest is the course's."""
    return ADAPTERS, get_assignment().package


def is_students(path: PurePath) -> bool:
    """Tell whether a path relative to the root is the student's; upper and lower case may be mixed."""
    return path.parts[0].casefold() in student_files()


def is_own_code(path: PurePath) -> bool:
    """Tell whether the Python file at a path relative to the root is the student's, in whichever folder it is.

    The course's files, tests and installed packages are not.
    """
    *folders, name = path.parts
    if is_students(path) or path.suffix != ".py":
        return is_students(path)
    if not folders:
        return not IS_TEST.match(name)
    others = any(part.startswith((".", "whichline")) or part in INSTALLED for part in folders)
    return not (folders[0] in {*GIVEN_FOLDERS, *get_assignment().in_kit} or others or IS_TEST.match(name))


def is_own_file(file: str, root: Path) -> bool:
    """Tell whether a file, under the name that a code object gives it, is the student's code."""
    below = file.removeprefix(f"{root}{os.sep}")
    is_in_hidden_folder = below.startswith(".") and os.sep in below  # such as .venv, with thousands of files
    return below != file and not is_in_hidden_folder and is_own_code(PurePath(below))


def list_own_folders(root: Path) -> list[Path]:
    """List the folders at the root that hold Python files of the student's, directly or one folder below."""
    own = (each for each in sorted(root.glob("*")) if each.is_dir() and is_own_code(PurePath(each.name, "a.py")))
    found = (each for each in own if not (each / "pyvenv.cfg").exists())
    return [each for each in found if any(each.glob("*.py")) or any(each.glob("*/*.py"))]


def list_own_code(root: Path) -> list[Path]:
    """List the student's Python files."""
    paths = [*root.glob("*.py"), *(path for folder in list_own_folders(root) for path in folder.rglob("*.py"))]
    return sorted(path for path in paths if is_own_code(path.relative_to(root)))


def load_problems(root: Path, left_out: bool | None = False) -> dict[str, Problem]:
    """The problems by id, in the order of the assignment; this raises as `read_assignment` does.

    With `left_out`, these are the problems that this course leaves out instead; None lists both.
    """
    assignment = _read(root)
    problems = [replace(problem, feedback=problem.feedback or assignment.feedback) for problem in assignment.problem]
    check_weights(root, problems, "tests", (root / "tests").glob("test_*.py"))
    return {problem.id: problem for problem in problems if left_out in (problem.left_out, None)}


def check_weights(root: Path, problems: Iterable[Problem], kind: str, files: Iterable[Path]) -> set[str]:
    """List the tests in some files; AssignmentError if a weight of a kind, `tests` or `hidden`, has no test there."""
    tests = list_test_names(files)
    for number, problem in enumerate(problems):
        for name in getattr(problem, kind):
            if tests and name not in tests:
                close = difflib.get_close_matches(name, tests, 1)
                hint = f"; did you mean {close[0]}?" if close else ""
                complaint = Complaint(("problem", number, kind, name), f"weighs no test{hint}")
                raise locate_error(root / FILE_NAME, complaint)
    return tests


def find_tests(folders: Iterable[Path], problems: Iterable[Problem], more: Iterable[Path] = ()) -> dict[str, Path]:
    """Find the first file, in some folders and then in some more files, of each test function that a problem counts."""
    counted = {name for problem in problems for name in problem.tests}
    found: dict[str, Path] = {}
    for path in (*(path for folder in folders for path in sorted(folder.glob("test_*.py"))), *more):
        found |= dict.fromkeys(list_test_names([path]) & counted - found.keys(), path)
    return found


def list_test_names(files: Iterable[Path]) -> set[str]:
    """The names of the test functions in some files."""
    texts = (file.read_text(encoding="utf-8", errors="replace") for file in files)
    return {test for text in texts for test in re.findall(r"^(?:def )?(test_\w+)", text, re.M)}


def find_needs(problems: Mapping[str, Problem], problem: str) -> list[str]:
    """The problems that one builds on, directly or not, in the order of the assignment."""
    direct = problems[problem].needs
    found = {*direct, *(deeper for need in direct for deeper in find_needs(problems, need))}
    return [each for each in problems if each in found]


def find_problem(problems: Mapping[str, Problem], name: str) -> Problem:
    """The problem of this name, or the first whose id or title contains it; AssignmentError if there is none."""
    for problem in [problems[name]] if name in problems else problems.values():
        if name.casefold() in f"{problem.id} {problem.title.casefold()}":
            return problem
    near = difflib.get_close_matches(name, problems, 1)
    others = f": is it {near[0]}?" if near else f"; the problems are {', '.join(problems)}"
    raise AssignmentError(f"no problem is called {name}{others}")
