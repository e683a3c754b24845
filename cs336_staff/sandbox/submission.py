"""Take in what a student handed in: a file, a folder, a git checkout or a zip archive, all of it hostile until checked.

Only Python source is kept, in memory; nothing is unpacked to a disk.
"""

import hashlib
import os
import re
import stat
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import NoReturn

MIB = 1 << 20
MAX_ARCHIVE_BYTES = 256 * MIB
MAX_ENTRIES = 20_000
MAX_EXPANDED_BYTES = 1024 * MIB
MAX_RATIO = 200
MAX_SOURCE_FILES = 1_000
MAX_SOURCE_BYTES = 8 * MIB
MAX_PATH = 240
MAX_LINE = 200  # characters of a line in a report
LEFT_OUT = {"__MACOSX", "__pycache__", "node_modules", "site-packages", "venv"}  # and what starts with a dot
DATA = {"checkpoints", "data", "notebooks", "wandb"}  # may be as large as it likes, only its Python files are read
LAYOUTS = {"adapters.py": "adapters", "tests/adapters.py": "tests.adapters"}


class Refused(Exception):
    """The submission cannot be graded; the text says why and what to hand in instead."""


@dataclass(frozen=True)
class Submission:
    """What is graded.

    Attributes:
        name: of the file or folder that was handed in.
        files: path below the submission's root, with slashes -> source.
        adapters: the module that connects the tests to the student's code, `adapters` or `tests.adapters`.
    """

    name: str
    files: dict[str, bytes]
    adapters: str

    @property
    def sha256(self) -> str:
        """The same for the same files, wherever they came from."""
        digest = hashlib.sha256()
        for path, source in sorted(self.files.items()):
            digest.update(f"{len(path)} {path} {len(source)} ".encode() + source)
        return digest.hexdigest()

    def line(self, file: str, number: int) -> str:
        """One line of the source, without its indentation, cut off if it is long; empty where there is none."""
        lines = self._lines.get(file, [])
        return lines[number - 1].strip()[:MAX_LINE] if 0 < number <= len(lines) else ""

    @cached_property
    def _lines(self) -> dict[str, list[str]]:
        """As Python counts lines: str.splitlines also ends them at form feeds and other characters."""
        ends = re.compile(r"\r\n|\r|\n")
        return {path: ends.split(source.decode(errors="replace")) for path, source in self.files.items()}


def take_in(path: Path) -> Submission:
    """The submission in `path`: a Python file (its own adapters), a folder, or a zip archive.

    `adapters.py` is looked for at the root, in `tests/`, and in the same places one folder down; one folder around
    everything is ignored.

    Raises:
        Refused: it is hostile, broken or too large, or has no adapters.
    """
    if path.is_dir():
        files = _collect(_in_folder(path))
    elif not path.is_file():
        got = "a device, pipe or socket" if path.exists() else "a path where nothing is"
        raise Refused(f"expected a Python file, a folder or a zip archive, got {got}")
    elif path.suffix == ".py":
        files = _collect([(PurePosixPath("adapters.py"), path.stat().st_size, partial(_read_file, path))])
    else:
        files = _in_archive(path)
    root, adapters = _find_adapters(files)
    below = {file.removeprefix(root): source for file, source in files.items() if file.startswith(root)}
    return Submission(path.resolve().name, below, adapters)


Entry = tuple[PurePosixPath, int, Callable[[], bytes]]


def _collect(entries: Iterator[Entry] | list[Entry]) -> dict[str, bytes]:
    """Read the Python files among `entries` (path, size, how to read it), within the limits."""
    files: dict[str, bytes] = {}
    total = 0
    for path, size, read in entries:
        if path.suffix != ".py" or _is_left_out(path):
            continue
        if len(str(path)) > MAX_PATH or not str(path).isprintable():
            raise Refused(f"expected printable paths of at most {MAX_PATH} characters, got {_shown(str(path))}")
        total += size
        if len(files) >= MAX_SOURCE_FILES or total > MAX_SOURCE_BYTES:
            limit = f"{MAX_SOURCE_FILES} Python files with {MAX_SOURCE_BYTES // MIB} MiB together"
            raise Refused(f"expected at most {limit}; hand in only your own code")
        files[str(path)] = read()
    return files


def _is_left_out(path: PurePosixPath) -> bool:
    return any(part in LEFT_OUT or part.startswith(".") for part in path.parts[:-1])


def _in_folder(root: Path) -> Iterator[Entry]:
    for entries, (folder, folders, names) in enumerate(os.walk(root, onerror=_raise)):
        below = PurePosixPath(Path(folder).relative_to(root).as_posix())
        folders[:] = sorted(name for name in folders if not _is_left_out(below / name / "_"))
        if entries > MAX_ENTRIES:
            raise Refused(f"expected at most {MAX_ENTRIES} folders; hand in only your own code")
        for name in sorted(names):
            file = Path(folder, name)
            mode = file.lstat().st_mode
            if name.endswith(".py") and not stat.S_ISREG(mode):
                raise Refused(f"expected files and folders, but {_shown(str(below / name))} is a link or a device")
            yield below / name, file.lstat().st_size, partial(_read_file, file)


def _raise(error: OSError) -> NoReturn:
    """A folder that cannot be read is not one that is not there."""
    raise error


def _read_file(file: Path) -> bytes:
    with open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW), "rb") as opened:
        return opened.read(MAX_SOURCE_BYTES)


def _in_archive(path: Path) -> dict[str, bytes]:
    if (size := path.stat().st_size) > MAX_ARCHIVE_BYTES:
        raise Refused(f"expected an archive of at most {MAX_ARCHIVE_BYTES // MIB} MiB, got {size // MIB} MiB")
    # Counted before zipfile builds an object for each: every entry of the directory starts with this signature.
    if (count := path.read_bytes().count(b"PK\x01\x02")) > MAX_ENTRIES:
        raise Refused(f"expected an archive of at most {MAX_ENTRIES} files, got {count}")
    try:
        with zipfile.ZipFile(path) as archive:
            return _collect(_entries(archive, size))
    except Refused:
        raise
    except Exception as error:  # zipfile raises a dozen kinds on a crafted file
        raise Refused(
            f"expected a zip archive that can be read, got {type(error).__name__}: {_shown(str(error))}"
        ) from None


def _entries(archive: zipfile.ZipFile, archive_bytes: int) -> list[Entry]:
    entries: list[Entry] = []
    for info in archive.infolist():
        path = _checked(info.filename)
        kind = stat.S_IFMT(info.external_attr >> 16)
        if _is_left_out(path):
            continue
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise Refused(f"expected files and folders, but {_shown(info.filename)} is a link or a device")
        if info.flag_bits & 1:
            raise Refused(f"expected an archive without a password, but {_shown(info.filename)} is encrypted")
        if not info.is_dir():
            entries.append((path, info.file_size, partial(_read_entry, archive, info)))
    expanded = sum(size for path, size, _ in entries if path.suffix == ".py" or not DATA.intersection(path.parts))
    if expanded > MAX_EXPANDED_BYTES or expanded > max(MAX_RATIO * archive_bytes, 16 * MIB):
        raise Refused(f"expected an archive of source code, but {archive_bytes} bytes expand to {expanded}")
    twice = [str(path) for path, n in Counter(path for path, _, _ in entries).items() if n > 1]
    if twice:
        raise Refused(f"expected each file once, but the archive has {_shown(twice[0])} several times")
    return entries


def _read_entry(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    with archive.open(info) as file:
        return file.read(info.file_size + 1)


def _checked(name: str) -> PurePosixPath:
    path = PureWindowsPath(name)  # it takes both kinds of slashes, as archives do
    if path.anchor or ".." in path.parts:
        raise Refused(f"expected paths inside the submission, got {_shown(name)}")
    return PurePosixPath(path.as_posix())


def _shown(name: str) -> str:
    return ascii(name[:80])


def _find_adapters(files: dict[str, bytes]) -> tuple[str, str]:
    """Where the submission's root lies, as a prefix of its paths, and which module its adapters are."""
    folders = [PurePosixPath(file).parts[:-1] for file in files]
    for depth in (0, 1, 2):
        roots = {"".join(f"{name}/" for name in parts[:depth]) for parts in folders if len(parts) >= depth}
        layouts = [(root, module) for root in sorted(roots) for file, module in LAYOUTS.items() if root + file in files]
        if len({root for root, _ in layouts}) > 1:
            several = ", ".join(_shown(root) for root in sorted({root for root, _ in layouts}))
            raise Refused(f"expected one submission, but there are adapters in {several}; hand in one of them")
        if layouts:
            return layouts[0]
        if depth == 1 and len(roots) > 1:  # two folders down only where the first of them is around everything
            break
    raise Refused("expected adapters.py, or tests/adapters.py, at the root of what is handed in or one folder down")
