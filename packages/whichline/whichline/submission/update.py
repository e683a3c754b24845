"""Install an update of the course's files.

An update is a zip (`archive.py`) with the manifest {"version": "0.1.1", "files": {NAME: SHA256}, "removed": [NAME]}. It
holds files that students do not write; "removed" lists those that the new release no longer has. If it holds a kit, a
wheel with its version in its name, the wheels of other versions are removed.
"""

import shutil
from dataclasses import dataclass
from itertools import count
from pathlib import Path, PurePosixPath

from whichline.engine.assignment import is_students
from whichline.engine.kit import WHEELS, find_wheels
from whichline.submission.archive import NAME, ArchiveError, check_names, read_archive, write_archive

MANIFEST = "update.json"
FORBIDDEN = (".git", ".venv")  # git and uv look after these themselves


@dataclass(frozen=True)
class Update:
    """The course's files of one release."""

    version: str
    files: dict[str, bytes]  # by name
    removed: tuple[str, ...]  # names of files that the release no longer has

    def __post_init__(self) -> None:
        if "/" in self.version or not NAME.fullmatch(self.version):
            raise ArchiveError(f"{self.version!r} is not a version")
        check_names([*self.files, *self.removed])
        for name in map(PurePosixPath, (*self.files, *self.removed)):
            if is_students(name) or name.parts[0].casefold() in FORBIDDEN:
                whose = "which students write" if is_students(name) else "which is not the course's"
                raise ArchiveError(f"the update would touch {name}, {whose}")


def write_update(path: Path, update: Update) -> None:
    """Write an update archive; ArchiveError if the disk is full."""
    write_archive(path, MANIFEST, {"version": update.version, "removed": update.removed}, update.files)


def read_update(path: Path) -> Update:
    """Read an update archive; ArchiveError if it is damaged, or names a file that it may not touch."""
    manifest, files = read_archive(path, MANIFEST)
    try:
        return Update(str(manifest["version"]), files, tuple(map(str, manifest["removed"])))
    except (KeyError, TypeError):
        raise ArchiveError(f"the {MANIFEST} of {path} lacks a version or what was removed; download it again") from None


def apply_update(root: Path, update: Update) -> tuple[dict[str, str], Path]:
    """Install the files; return each changed file with "new", "changed" or "removed", and the folder of old copies.

    ArchiveError, before any change, if a link or a folder is in the way, and later if the disk is full.
    """
    kits = [path.relative_to(root).as_posix() for path in find_wheels(root)]
    old_kits = kits if any(PurePosixPath(name).match(WHEELS) for name in update.files) else []
    names = (*update.files, *update.removed, *old_kits)
    changes = {name: kind for name in names if (kind := _compare(root, name, update.files.get(name)))}
    copies = next(path for n in count(1) if not (path := root / f"before-update-{update.version}-{n}").exists())
    try:
        for name, kind in changes.items():
            if kind != "new":
                (copies / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, copies / name)
            (root / name).unlink(missing_ok=True)  # it may be a link
            if kind != "removed":
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_bytes(update.files[name])
    except OSError as error:
        raise ArchiveError(f"cannot write {error.filename}: {error.strerror}; run the command again") from None
    return changes, copies


def _compare(root: Path, name: str, new: bytes | None) -> str:
    """Say how the update changes a file; "" if it already has the new content, with any line endings."""
    target = root / name
    folder = target.parent.resolve()
    if not folder.is_relative_to(root.resolve()) or is_students(folder.relative_to(root.resolve()) / target.name):
        raise ArchiveError(f"{target.parent} is a link to another folder; put a folder there and try again")
    for path in (target, *target.parents):
        if path.is_relative_to(root) and path != root and path.exists() and path.is_dir() == (path == target):
            raise ArchiveError(f"{path} is in the way of {name}, which the update brings; move it away")
    if not target.exists():
        return "" if new is None else "new"
    if new is None:
        return "removed"
    return "" if target.read_bytes().splitlines() == new.splitlines() else "changed"
