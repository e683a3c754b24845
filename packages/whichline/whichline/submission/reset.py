"""Begin a problem again: its starter code replaces the student's files, which are kept under another name."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

from whichline.engine.assignment import Problem
from whichline.engine.errors import CourseworkError
from whichline.engine.problem_folder import find_starter


def list_written(root: Path, problem: Problem) -> dict[str, bytes]:
    """The files of a problem that differ from their starter code, with it; CourseworkError if there is neither."""
    starters = {name: code for name in problem.files if (code := find_starter(name)) is not None}
    if missing := [name for name in problem.files if name not in starters]:
        raise CourseworkError(f"there is no starter code of {missing[0]} here: only the kit of a handout has it")
    written = {name: code for name, code in starters.items() if not _is_same(root / name, code)}
    if not written:
        raise CourseworkError(f"{problem.id}: {' and '.join(starters)} is as at the start")
    return written


def reset(root: Path, written: dict[str, bytes]) -> Iterator[tuple[str, str]]:
    """Replace files by their starter code, and yield each name with that of the kept file, "" if there was no file."""
    for name, code in written.items():
        path, kept = root / name, ""
        if path.exists():
            # The name does not end in .py: nothing imports the file, and it is not handed in.
            names = (path.with_name(f"{path.name}.before-reset-{n}") for n in count(1))
            aside = next(each for each in names if not each.exists())
            kept = path.rename(aside).relative_to(root).as_posix()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(code)
        yield name, kept


def _is_same(path: Path, code: bytes) -> bool:
    """Tell whether a file has this code, with any line endings."""
    return path.is_file() and path.read_bytes().splitlines() == code.splitlines()
