"""Pack a submission: a zip of the student's code, with the public board in its manifest."""

import ast
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from whichline.checking.board import Score
from whichline.engine.assignment import ADAPTERS, PROBLEMS, Problem, get_assignment, list_test_names
from whichline.engine.assignment import FILE_NAME as ASSIGNMENT
from whichline.engine.errors import CourseworkError
from whichline.submission.archive import ArchiveError, check_names, read_archive, write_archive

FILE_NAME = "submission.zip"
MANIFEST = "manifest.json"


class SubmissionError(CourseworkError):
    """The files cannot be handed in as they are; the message says why and what to do."""


def collect(root: Path, problems: Mapping[str, Problem]) -> dict[str, bytes]:
    """Read the student's Python files by name, such as "package/nn/module.py".

    SubmissionError if a file that a problem names is missing, a file cannot be parsed, or it imports a module that is
    not handed in; ArchiveError if not every system can store one of the names.
    """
    for problem in problems.values():
        for name in (ADAPTERS, *problem.files):
            if not (root / name).is_file():
                raise SubmissionError(f"{name} is missing; put it back, even if it is empty")
    package, kit = get_assignment().package, {"whichline", *get_assignment().in_kit}
    below = (path for path in sorted((root / package).rglob("*.py")) if path.is_file())
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in (root / ADAPTERS, *below)}
    check_names(list(files))
    for name, source in files.items():
        for module in _list_imports(name, source):
            beside = (root / module).is_dir() or (root / f"{module}.py").is_file()
            if module in kit or (beside and module not in ("adapters", package)):
                out = f"{name} imports {module}, which is not handed in"
                raise SubmissionError(f"{out}; remove the import, or move your module into {package}/")
    return files


@contextmanager
def unpacked(root: Path, files: Mapping[str, bytes]) -> Iterator[Path]:
    """Make a folder with these files and the course's tests, and nothing else of the student's."""
    tests = {test for problem in get_assignment().problem for test in problem.tests}
    with TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        given = [path for path in (root / "tests").glob("test_*.py") if tests & list_test_names([path])]
        copied = {path.relative_to(root).as_posix(): path.read_bytes() for path in (root / ASSIGNMENT, *given)}
        for file, content in {**files, **copied}.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(content)
        for part in ("fixtures", PROBLEMS):  # students have the problems in their kit
            if (root / part).is_dir():
                shutil.copytree(root / part, folder / part)
        yield folder


def write_submission(path: Path, files: Mapping[str, bytes], scores: Sequence[Score]) -> None:
    """Write the zip; the same files and results give the same bytes. ArchiveError if it cannot be written.

    Its manifest holds the versions of the suite and of torch, the sha256 of each file, and for each problem the number
    of tests that passed and the points.
    """
    board = {
        result.problem.id: {"passed": result.passed, "tests": len(result.results), "points": round(result.points, 4)}
        for result in scores
    }
    manifest = {"suite": version(get_assignment().package), "torch": version("torch"), "board": board}
    write_archive(path, MANIFEST, manifest, files)


def read_submission(path: Path) -> tuple[dict[str, bytes], list[str]]:
    """Read the files, and the results of the tests, a line for each problem; ArchiveError if it is no submission."""
    manifest, files = read_archive(path, MANIFEST)
    try:
        board = [
            f"{problem}: {result['passed']:d} of {result['tests']:d} tests, {result['points']:.1f} points"
            for problem, result in manifest["board"].items()
        ]
        lines = [f"suite {manifest['suite']}, torch {manifest['torch']}", *board]
        if not all(line.isprintable() for line in lines):
            raise ValueError("it would command a terminal")
        return files, lines
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ArchiveError(f"the {MANIFEST} of {path} cannot be read; is it the right zip?") from None


def _list_imports(name: str, source: bytes) -> Iterator[str]:
    """The first part of the name of each module that a file imports."""
    try:
        tree = ast.parse(source, name)
    except SyntaxError as error:
        place = name if error.lineno is None else f"{name}:{error.lineno}"
        raise SubmissionError(f"{place}: {error.msg}") from None
    except ValueError as error:
        raise SubmissionError(f"{name} is not valid Python: {error}") from None
    except (RecursionError, MemoryError):
        raise SubmissionError(f"{name} has an expression nested too deep for Python; split it into several") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
