"""Beginning a problem again: its starter code in place of what the student wrote, which is kept aside."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

from whichline.engine.assignment import Problem
from whichline.engine.errors import CourseworkError
from whichline.engine.problem_folder import find_starter


class ResetError(CourseworkError):
    """Nothing was reset; the message says why."""


def list_written(root: Path, problem: Problem) -> dict[str, bytes]:
    """The files of a problem that are not as at the start, each with its starter code.

    Raises:
        ResetError: there are none, or this folder has no starter code.
    """
    starters = {name: code for name in problem.files if (code := find_starter(name)) is not None}
    if missing := [name for name in problem.files if name not in starters]:
        raise ResetError(f"there is no starter code of {missing[0]} here: only the kit of a handout has it")
    written = {name: code for name, code in starters.items() if not _is_same(root / name, code)}
    if not written:
        raise ResetError(f"{problem.id}: {' and '.join(starters)} is as at the start")
    return written


def reset(root: Path, written: dict[str, bytes]) -> Iterator[tuple[str, str]]:
    """Put starter code in the place of files, and give each name with that under which it is kept, "" if none was."""
    for name, code in written.items():
        path, kept = root / name, ""
        if path.exists():
            # Not a file of Python: nothing imports it, and it is not handed in.
            aside = next(
                each for n in count(1) if not (each := path.with_name(f"{path.name}.before-reset-{n}")).exists()
            )
            kept = path.rename(aside).relative_to(root).as_posix()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(code)
        yield name, kept


def _is_same(path: Path, code: bytes) -> bool:
    """Tell whether a file has this code, but perhaps for the ends of its lines."""
    return path.is_file() and path.read_bytes().splitlines() == code.splitlines()
