"""Putting an update of the course's files in place.

An update archive is a zip as in `cs336_kit.handing_in.archive` with the manifest `update.json`:

    {"version": "0.1.1", "files": {NAME: SHA256, ...}, "removed": [NAME, ...]}

It holds files that students do not write, whole; "removed" are names of files that the new release no longer has. The
kit is one of them, a wheel that has its version in its name; those of other versions go.
"""

import difflib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path, PurePosixPath

from cs336_kit.engine.assignment import is_students
from cs336_kit.engine.kit import WHEELS, find_wheels
from cs336_kit.handing_in.archive import NAME, ArchiveError, read_archive, write_archive

MANIFEST = "update.json"

# git and uv look after these themselves.
FORBIDDEN = (".git", ".venv")


@dataclass(frozen=True)
class Update:
    """The course's files of one release.

    Args:
        version: of the release.
        files: what to put in place, by name.
        removed: names of what to take away.
    """

    version: str
    files: dict[str, bytes]
    removed: tuple[str, ...]


@dataclass(frozen=True)
class Change:
    """A change to one file.

    Args:
        name: of the file.
        kind: "new", "changed" or "removed".
        lines: how many lines come and how many go; None for a file that is not text.
    """

    name: str
    kind: str
    lines: tuple[int, int] | None


def write_update(path: Path, update: Update) -> None:
    """Write an update archive.

    Raises:
        ArchiveError: a file of the student's, a name that not every system can store, or a disk that is full.
    """
    _check(update)
    write_archive(path, MANIFEST, {"version": update.version, "removed": update.removed}, update.files)


def read_update(path: Path) -> Update:
    """Read an update archive.

    Raises:
        ArchiveError: it is damaged, or names a file that an update may not touch.
    """
    manifest, files = read_archive(path, MANIFEST)
    try:
        update = Update(str(manifest["version"]), files, tuple(map(str, manifest["removed"])))
    except (KeyError, TypeError):
        raise ArchiveError(f"the {MANIFEST} of {path} lacks a version or what was removed; download it again") from None
    _check(update)
    return update


def apply_update(root: Path, update: Update) -> tuple[list[Change], Path]:
    """Put the files in place, and copies of what they replace in a folder of their own.

    Returns:
        What changed, and the folder of the copies, which is there if anything was replaced.

    Raises:
        ArchiveError: a link or a folder is in the way, or the disk is full; nothing was changed.
    """
    changes = list(_changes(root, update))
    copies = _free(root / f"before-update-{update.version}")
    try:
        with tempfile.TemporaryDirectory(dir=root, prefix=".update-") as folder:
            for change in changes:
                if change.kind != "new":
                    _copy(root / change.name, copies / change.name)
                if change.kind != "removed":
                    new = Path(folder) / change.name
                    new.parent.mkdir(parents=True, exist_ok=True)
                    new.write_bytes(update.files[change.name])
            for change in changes:  # only now, when all is on the disk
                if change.kind == "removed":
                    (root / change.name).unlink()
                else:
                    (root / change.name).parent.mkdir(parents=True, exist_ok=True)
                    os.replace(Path(folder) / change.name, root / change.name)
    except OSError as error:
        raise ArchiveError(f"cannot write {error.filename}: {error.strerror}; try again") from None
    return changes, copies


def _changes(root: Path, update: Update) -> Iterator[Change]:
    kits = [path.relative_to(root).as_posix() for path in find_wheels(root)]
    old_kits = kits if any(PurePosixPath(name).match(WHEELS) for name in update.files) else []
    for name in dict.fromkeys((*update.files, *update.removed, *old_kits)):
        target = root / name
        folder = target.parent.resolve()
        if not folder.is_relative_to(root.resolve()) or is_students(folder.relative_to(root.resolve()) / target.name):
            raise ArchiveError(f"{target.parent} is a link to another folder; put a folder there and try again")
        if target.is_dir():
            raise ArchiveError(f"{target} is a folder, and the update has a file of that name; move it away")
        if blocked := next((above for above in target.relative_to(root).parents if (root / above).is_file()), None):
            raise ArchiveError(f"{root / blocked} is a file, and the update has a folder of that name; move it away")
        old = target.read_bytes() if target.exists() else None
        new = update.files.get(name)
        kind = "new" if old is None else "removed" if new is None else "changed"
        lines = _count_lines(old or b"", new or b"")
        if old != new and (kind != "changed" or lines != (0, 0)):  # else git has put other ends to its lines
            yield Change(name, kind, lines)


def _free(folder: Path) -> Path:
    """This folder, or one with a number behind its name: what an earlier update replaced stays."""
    numbered = (folder.with_name(f"{folder.name}-{number}") for number in count(2))
    return next(path for path in chain([folder], numbered) if not path.exists())


def _count_lines(old: bytes, new: bytes) -> tuple[int, int] | None:
    try:
        before, after = old.decode().splitlines(), new.decode().splitlines()
    except UnicodeDecodeError:
        return None
    signs = [line[0] for line in difflib.unified_diff(before, after, n=0, lineterm="")][2:]
    return signs.count("+"), signs.count("-")


def _copy(file: Path, copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(file, copy)


def _check(update: Update) -> None:
    if "/" in update.version or not NAME.fullmatch(update.version):
        raise ArchiveError(f"{update.version!r} is not a version")
    for name in (*update.files, *update.removed):
        if not NAME.fullmatch(name):
            raise ArchiveError(f"{name!r} is not a valid name in an archive: use letters, digits, _ - . and /")
        if is_students(PurePosixPath(name)):
            raise ArchiveError(f"the update would touch {name}, which students write")
        if PurePosixPath(name).parts[0].casefold() in FORBIDDEN:
            raise ArchiveError(f"the update would touch {name}, which is not the course's")
