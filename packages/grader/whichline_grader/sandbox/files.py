"""Collect the Python files of a folder or an archive. All input is hostile, and nothing is unpacked to disk."""

import gzip
import io
import json
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import NoReturn

from whichline.engine.assignment import ADAPTERS, get_assignment, name_command
from whichline.engine.errors import CourseworkError
from whichline.submission.archive import ArchiveError, read_entry

MIB = 1 << 20
MAX_ARCHIVE_BYTES = 256 * MIB
MAX_UNPACKED_BYTES = 32 * MIB  # of a tar archive, which has to be read from beginning to end
MAX_ENTRIES = 20_000
MAX_SOURCE_FILES = 1_000
MAX_SOURCE_BYTES = 8 * MIB
MAX_PATH = 240
MAX_PATHS_BYTES = MIB // 2  # of all paths together, as JSON: half of the limit on a frame's header
MAX_SHOWN = 3  # paths in a message
OWN_CODE = "hand in only your own code"
LEFT_OUT = {"__MACOSX", "__pycache__", "node_modules", "site-packages", "venv"}  # and names that start with a dot
TAR = (".tar", ".tar.gz", ".tgz")
NO_CODE = {".ipynb": "a notebook", ".pdf": "a PDF", ".docx": "a text document"}
NO_CODE |= {".7z": "a 7z archive", ".rar": "a RAR archive"}


def describe_instead() -> str:
    package, command = get_assignment().package, name_command("submit")
    return f"put your code into {ADAPTERS} and {package}/, and hand in the submission.zip that `{command}` writes"


class Refused(CourseworkError):
    """The submission cannot be graded; the text says why and what to hand in instead."""

    content = ""  # sha256 of the submission, if a `Reader` read it

    def __init__(self, why: str) -> None:
        instead = describe_instead()
        super().__init__(why if why.endswith(instead) else f"{why}; {instead}")


# A path, and a function that reads at most so many bytes of the file; None for a link or a device.
Entry = tuple[PurePosixPath, Callable[[int], bytes] | None]


class Collected:
    """The Python files among some entries, within the limits, and remarks on the rest."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.files: dict[str, bytes] = {}  # by path
        self.links: list[str] = []  # Python files that are links or devices
        self.archives: list[str] = []  # paths that look like archives
        self.kinds: set[str] = set()  # of files that are handed in instead of code, such as "a notebook"
        bytes_left, bytes_left_for_paths = MAX_SOURCE_BYTES, MAX_PATHS_BYTES
        for path, read in entries:
            name = str(path)
            if _is_left_out(path):
                continue
            if path.suffix != ".py":
                is_archive = name.lower().endswith((".zip", *TAR)) and not path.name.startswith(".")
                self.archives += [name] if is_archive else []
                self.kinds |= {NO_CODE[suffix]} if (suffix := path.suffix.lower()) in NO_CODE else set()
                continue
            if len(name) > MAX_PATH or not name.isprintable():
                raise _refuse_path(name)
            if name in self.files:
                raise Refused(f"expected each file once, but the archive has {show_name(name)} several times")
            bytes_left_for_paths -= len(json.dumps(name))
            if bytes_left_for_paths < 0:
                limit = f"{MAX_PATHS_BYTES // 1024} KiB"
                raise Refused(f"expected paths of Python files of at most {limit} together; {OWN_CODE}")
            if read is None:
                self.links.append(name)
                continue
            self.files[name] = read(bytes_left)
            bytes_left -= len(self.files[name])
            if len(self.files) > MAX_SOURCE_FILES or bytes_left < 0:
                limit = f"{MAX_SOURCE_FILES} Python files with {MAX_SOURCE_BYTES // MIB} MiB together"
                raise Refused(f"expected at most {limit}; {OWN_CODE}")
        adapters = [name for name in self.files if PurePosixPath(name).name.lower() == ADAPTERS]
        self.respelt = [name for name in adapters if len(adapters) == 1 and not name.endswith(ADAPTERS)]
        for name in self.respelt:
            self.files[f"{name[: -len(ADAPTERS)]}{ADAPTERS}"] = self.files.pop(name)

    @property
    def remarks(self) -> tuple[str, ...]:
        links = f"left out, since they are links or devices, not files: {show_names(self.links)}"
        respelt = (f"{show_name(name)} counts as adapters.py: write its name in small letters" for name in self.respelt)
        return (*respelt, *([links] if self.links else []))


def _is_left_out(path: PurePosixPath) -> bool:
    return any(part in LEFT_OUT or part.startswith(".") for part in path.parts[:-1])


def list_folder(root: Path) -> Iterator[Entry]:
    for entries, (folder, folders, names) in enumerate(os.walk(root, onerror=_raise)):
        below = PurePosixPath(Path(folder).relative_to(root).as_posix())
        if len(str(below)) > MAX_PATH:  # os.walk recurses into each folder
            raise _refuse_path(str(below))
        folders[:] = sorted(name for name in folders if not _is_left_out(below / name / "_"))
        if entries > MAX_ENTRIES:
            raise Refused(f"expected at most {MAX_ENTRIES} folders; {OWN_CODE}")
        for name in sorted(names):
            file = Path(folder, name)
            yield below / name, partial(read_file, file) if stat.S_ISREG(file.lstat().st_mode) else None


def _raise(error: OSError) -> NoReturn:
    """Make os.walk raise: it would skip a folder that it cannot read."""
    raise error


def _open(file: Path) -> io.BufferedReader:
    """Open a file but no link, which may lead to another student's files or to an endless device."""
    return open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")


def read_file(file: Path, most: int) -> bytes:
    with _open(file) as opened:
        return opened.read(most + 1)


def read_archive(path: Path) -> Collected:
    if not stat.S_ISREG(path.lstat().st_mode):
        raise Refused(f"expected an archive, but {show_name(path.name)} is a link or a device; {describe_instead()}")
    if (size := path.stat().st_size) > MAX_ARCHIVE_BYTES:
        raise Refused(f"expected an archive of at most {MAX_ARCHIVE_BYTES // MIB} MiB, got {size // MIB} MiB")
    is_tar = path.name.endswith(TAR)
    try:
        with _open(path) as file:
            if is_tar:
                return Collected(_list_tar(file, path.name))
            taken = Collected(_list_zip(file))
            zips = [name for name in taken.archives if name.lower().endswith(".zip")]
            if not taken.files and len(taken.archives) == len(zips) == 1:
                taken = Collected(_list_zip(io.BytesIO(_read_inside(file, zips[0]))))
            return taken
    except (Refused, MemoryError):
        raise
    except Exception as error:  # both libraries raise a dozen types on a crafted file
        kind = "tar" if is_tar else "zip"
        expected = f"expected a {kind} archive that can be read"
        if isinstance(error, ArchiveError):
            raise Refused(f"{expected}, but {error}") from None
        raise Refused(f"{expected}, but {show_name(path.name)} is damaged or is not a {kind} archive") from None


def _read_inside(file: io.BufferedReader, name: str) -> bytes:
    with zipfile.ZipFile(file) as archive:
        info = next(each for each in archive.infolist() if str(_check_path(each.filename)) == name)
        return _check_size(read_entry(archive, info, MAX_UNPACKED_BYTES))


def _list_zip(file: io.BufferedReader | io.BytesIO) -> Iterator[Entry]:
    # Count before zipfile builds an object for each entry: each one in the directory starts with this signature.
    if (count := file.read().count(b"PK\x01\x02")) > MAX_ENTRIES:
        raise Refused(f"expected an archive of at most {MAX_ENTRIES} files, got {count}")
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            inside = _check_path(info.filename)
            is_file = stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG)
            if not info.is_dir():
                yield inside, partial(read_entry, archive, info) if is_file else None


def _list_tar(file: io.BufferedReader, name: str) -> Iterator[Entry]:
    with gzip.open(file) if not name.endswith(".tar") else file as unpacked:
        data = _check_size(unpacked.read(MAX_UNPACKED_BYTES + 1))
    with tarfile.open(fileobj=io.BytesIO(data), mode="r|") as archive:
        for count, member in enumerate(archive):
            if count > MAX_ENTRIES:
                raise Refused(f"expected an archive of at most {MAX_ENTRIES} files")
            if not member.isdir():
                is_file = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE)
                yield _check_path(member.name), partial(_read_member, archive, member) if is_file else None


def _check_size(data: bytes) -> bytes:
    if len(data) > MAX_UNPACKED_BYTES:
        raise Refused(f"expected an archive of at most {MAX_UNPACKED_BYTES // MIB} MiB when unpacked; {OWN_CODE}")
    return data


def _read_member(archive: tarfile.TarFile, member: tarfile.TarInfo, most: int) -> bytes:
    file = archive.extractfile(member)
    return file.read(most + 1) if file else b""


def _check_path(name: str) -> PurePosixPath:
    path = PureWindowsPath(name)  # accepts both kinds of slashes, as archives do
    if path.anchor or ".." in path.parts:
        raise Refused(f"expected paths inside the submission, got {show_name(name)}")
    return PurePosixPath(path.as_posix())


def _refuse_path(path: str) -> Refused:
    return Refused(f"expected printable paths of at most {MAX_PATH} characters, got {show_name(path)}")


def show_name(name: str) -> str:
    return ascii(name[:80])


def show_names(names: Collection[str]) -> str:
    return ", ".join(map(show_name, [*names][:MAX_SHOWN])) + ", ..." * (len(names) > MAX_SHOWN)
