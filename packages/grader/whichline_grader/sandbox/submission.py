"""Take in what a student handed in: a file, a folder, a git checkout or an archive, all of it hostile until checked.

Only Python source is kept, in memory; nothing is unpacked to a disk.
"""

import ast
import gzip
import hashlib
import io
import json
import os
import re
import stat
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import NoReturn

from whichline.engine.assignment import ADAPTERS, name_command, this_assignment, this_root
from whichline.engine.errors import CourseworkError
from whichline.handing_in.archive import ArchiveError, read_entry

MIB = 1 << 20
MAX_ARCHIVE_BYTES = 256 * MIB
MAX_UNPACKED_BYTES = 32 * MIB  # of a tar archive, which is read from its beginning to its end
MAX_ENTRIES = 20_000
MAX_SOURCE_FILES = 1_000
MAX_SOURCE_BYTES = 8 * MIB
MAX_PATH = 240
MAX_PATHS_BYTES = MIB // 2  # of all paths together, as JSON: half of what the header of a frame may have
MAX_ADAPTERS_BYTES = MIB // 16  # of adapters that are read where there are several
MAX_PARSED_BYTES = MIB // 4  # of all own files: a tree takes hundreds of times the memory
MAX_FUNCTIONS = 60  # that may be named: a hidden input may choose which one is, and 60 spell six bits of it
MAX_SHOWN = 3  # paths in a message
MAX_LINE = 200  # characters of a line in a report
LEFT_OUT = {"__MACOSX", "__pycache__", "node_modules", "site-packages", "venv"}  # and what starts with a dot
GIVEN = "given"  # in the student's package: what every student has, as it is
# What takes long to import, and the words without which no submission needs it. torch imports its compiler for
# checkpoints, optimizers and most of torch.func too.
SLOW_IMPORTS = {
    **{name: re.compile(rb"\b%b\b" % name.encode()) for name in ("beartype", "einx", "triton")},
    "torch._dynamo": re.compile(
        rb"\bcheckpoint|\boptim\b|Optimizer|\bfunc(\.| import | as )(?!functional_call)|functorch|profiler|compiler"
        rb"|dynamo|torch\.(cond|export|testing)|assert_close|flex_attention|higher_order"
    ),
}
LAYOUTS = {"adapters.py": "adapters", "tests/adapters.py": "tests.adapters", "src/adapters.py": "adapters"}
TAR = (".tar", ".tar.gz", ".tgz")
NO_CODE = {
    **{".ipynb": "a notebook", ".pdf": "a PDF", ".docx": "a text document"},
    **{".7z": "a 7z archive", ".rar": "a RAR archive"},
}


def tell_instead() -> str:
    """Say what to hand in."""
    package, command = this_assignment().package, name_command("submit")
    return f"put your code into {ADAPTERS} and {package}/, and hand in the submission.zip that `{command}` writes"


class Refused(CourseworkError):
    """The submission cannot be graded; the text says why and what to hand in instead.

    Attributes:
        content: sha256 of what was handed in, if it was read by a `Reader`.
    """

    content = ""

    def __init__(self, why: str) -> None:
        instead = tell_instead()
        super().__init__(why if why.endswith(instead) else f"{why}; {instead}")


@dataclass(frozen=True)
class Submission:
    """The files that are graded.

    Attributes:
        name: of the file or folder that was handed in.
        files: path below the submission's root, with slashes -> source.
        adapters: the module that connects the tests to the student's code, `adapters` or `tests.adapters`.
        remarks: what was left out or chosen, for the student and for staff.
    """

    name: str
    files: dict[str, bytes]
    adapters: str
    remarks: tuple[str, ...] = ()

    @cached_property
    def sha256(self) -> str:
        """The same for the same files, wherever they came from."""
        digest = hashlib.sha256()
        for path, source in sorted(self.files.items()):
            digest.update(f"{len(path)} {path} {len(source)} ".encode() + source)
        return digest.hexdigest()

    @cached_property
    def slow_imports(self) -> list[str]:
        """List what the process that it is forked from should have imported, or its own calls would pay for that."""
        own = {
            line
            for path, source in self.files.items()
            if not is_the_courses(path, source)
            for line in source.split(b"\n")
        }
        own.difference_update((this_root() / ADAPTERS).read_bytes().split(b"\n"))
        return [module for module, words in SLOW_IMPORTS.items() if any(map(words.search, own))]

    def line(self, file: str, number: int) -> str:
        """One line of the source, without its indentation, cut off if it is long; empty if there is no such line."""
        lines = self._lines.get(file, [])
        return lines[number - 1].strip()[:MAX_LINE] if 0 < number <= len(lines) else ""

    @cached_property
    def functions(self) -> Collection[tuple[str, str]]:
        """File and name of the student's own functions, the first ones in the order of the files."""
        found: dict[tuple[str, str], None] = {}
        room = MAX_PARSED_BYTES
        for path, source in sorted(self.files.items()):
            if not is_the_courses(path, source) and (room := room - len(source)) >= 0:
                nodes = (node for node in ast.walk(_parse(source)) if isinstance(node, ast.FunctionDef))
                found |= dict.fromkeys((path, node.name) for node in nodes)
        return [*found][:MAX_FUNCTIONS]

    @cached_property
    def _lines(self) -> dict[str, list[str]]:
        """As Python counts lines: str.splitlines also ends them at form feeds and other characters."""
        ends = re.compile(r"\r\n|\r|\n")
        return {path: ends.split(source.decode(errors="replace")) for path, source in self.files.items()}


def is_the_courses(path: str, source: bytes) -> bool:
    """Tell whether every student has this file, as it is."""
    with suppress(OSError, ValueError):  # a student's path may be anything
        return (this_root() / path).read_bytes().split() == source.split()
    return False


def take_in(path: Path, files: Mapping[str, Path] | None = None) -> Submission:
    """The submission in `path`: a Python file (its own adapters), a folder, or a zip or tar archive.

    Or it is several Python `files`, by their own names, for which `path` stands.

    `adapters.py` is looked for at the root, in `tests/` and in `src/`, and in the same places one folder down; one
    folder around everything is ignored. Of several adapters those are taken in which most is written. Adapters.py is
    adapters.py where there is no such file. A folder with an archive and no Python file is that archive, and so is a
    zip with one zip.

    Raises:
        Refused: it is hostile, broken or too large, or has no adapters.
    """
    if files and ADAPTERS not in map(str.lower, files):
        raise Refused(f"expected one archive, or adapters.py and other Python files, got {_some(files)}")
    if files:
        taken = _Collected((PurePosixPath(name), partial(_read_file, files[name])) for name in sorted(files))
    elif path.is_dir():
        taken = _Collected(_in_folder(path))
        if not taken.files and len(taken.archives) == 1:
            taken = _in_archive(path / taken.archives[0])
    elif not path.is_file():
        got = "a device, pipe or socket" if path.exists() else "a path where nothing is"
        raise Refused(f"expected a Python file, a folder or a zip archive, got {got}")
    elif path.suffix == ".py":
        taken = _Collected([(PurePosixPath("adapters.py"), partial(_read_file, path))])
    elif kind := NO_CODE.get(path.suffix.lower()):
        raise Refused(f"expected Python code, got {kind}")
    else:
        taken = _in_archive(path)
    root, file, remarks = _find_adapters(taken)
    below = {file.removeprefix(root): source for file, source in taken.files.items() if file.startswith(root)}
    if file == "src/adapters.py":
        below.pop("adapters.py", None)  # it would be imported in its place
    package = this_assignment().package
    if root.endswith(f"{package}/"):  # its files are imported by names with the folder, or without it
        below |= {f"{package}/{path}": source for path, source in below.items()}
    return Submission(path.resolve().name, _in_place(below), LAYOUTS[file], (*remarks, *taken.remarks))


def _in_place(files: dict[str, bytes]) -> dict[str, bytes]:
    """The same; files handed in without their folder also lie where import statements look for them.

    What every student is given lies beside them.
    """
    package = this_assignment().package
    if any(path.startswith(f"{package}/") for path in files):
        return files
    # Not \s, which would be looked for from each of many empty lines to the last. What is found fits in `MAX_PATH`.
    pattern = rb"^[ \t]*(?:from|import)[ \t]+(%b(?:\.\w{1,50}){0,3})\.(\w{1,50})\b" % package.encode()
    imported = re.compile(pattern, re.MULTILINE)
    wanted = sorted({match for source in files.values() for match in imported.findall(source)})
    names = {name: f"{folder.decode().replace('.', '/')}/{name.decode()}.py" for folder, name in wanted}
    placed = {path: files[f"{name.decode()}.py"] for name, path in names.items() if f"{name.decode()}.py" in files}
    folder = f"{package}/{GIVEN}"
    paths = (this_root() / folder).glob("*.py") if placed else ()
    given = {f"{folder}/{path.name}": path.read_bytes() for path in paths}
    return {**given, **files, **placed}


def content_of_refused(paths: Iterable[Path]) -> str:
    """sha256 of files, or of the names in a folder: what was refused must be looked at again once it has changed."""
    digest = hashlib.sha256()
    for path in paths:
        if path.is_file():
            with path.open("rb") as file:
                digest.update(b"%d\n" % path.stat().st_size + file.read(MAX_UNPACKED_BYTES))
        elif path.is_dir():
            with suppress(Refused):
                for inside, _ in _in_folder(path):
                    size = (path / inside).lstat().st_size
                    digest.update(f"{inside} {size}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


# Its path, and what reads it, with the most bytes that are wanted; None for a link or a device.
Entry = tuple[PurePosixPath, Callable[[int], bytes] | None]


class _Collected:
    """The Python files among `entries`, within the limits, and what else there is to say of them.

    Attributes:
        files: path -> source.
        links: Python files that are links or devices.
        archives: paths that look like archives.
        kinds: what there is in the place of code.
        respelt: the file that counts as adapters.py, and has capital letters.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.files: dict[str, bytes] = {}
        self.links: list[str] = []
        self.archives: list[str] = []
        self.kinds: set[str] = set()
        room, room_for_paths = MAX_SOURCE_BYTES, MAX_PATHS_BYTES
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
                raise _odd_path(name)
            if name in self.files:
                raise Refused(f"expected each file once, but the archive has {_shown(name)} several times")
            room_for_paths -= len(json.dumps(name))
            if room_for_paths < 0:
                limit = f"{MAX_PATHS_BYTES // 1024} KiB"
                raise Refused(f"expected paths of Python files of at most {limit} together; hand in only your own code")
            if read is None:
                self.links.append(name)
                continue
            self.files[name] = read(room)
            room -= len(self.files[name])
            if len(self.files) > MAX_SOURCE_FILES or room < 0:
                limit = f"{MAX_SOURCE_FILES} Python files with {MAX_SOURCE_BYTES // MIB} MiB together"
                raise Refused(f"expected at most {limit}; hand in only your own code")
        adapters = [name for name in self.files if PurePosixPath(name).name.lower() == ADAPTERS]
        self.respelt = [name for name in adapters if len(adapters) == 1 and not name.endswith(ADAPTERS)]
        for name in self.respelt:
            self.files[f"{name[: -len(ADAPTERS)]}{ADAPTERS}"] = self.files.pop(name)

    @property
    def remarks(self) -> tuple[str, ...]:
        links = f"left out, since they are links or devices and no files: {_some(self.links)}"
        respelt = (f"{_shown(name)} counts as adapters.py: write its name in small letters" for name in self.respelt)
        return (*respelt, *([links] if self.links else []))


def _is_left_out(path: PurePosixPath) -> bool:
    return any(part in LEFT_OUT or part.startswith(".") for part in path.parts[:-1])


def _in_folder(root: Path) -> Iterator[Entry]:
    for entries, (folder, folders, names) in enumerate(os.walk(root, onerror=_raise)):
        below = PurePosixPath(Path(folder).relative_to(root).as_posix())
        if len(str(below)) > MAX_PATH:  # os.walk calls itself for each folder in a folder
            raise _odd_path(str(below))
        folders[:] = sorted(name for name in folders if not _is_left_out(below / name / "_"))
        if entries > MAX_ENTRIES:
            raise Refused(f"expected at most {MAX_ENTRIES} folders; hand in only your own code")
        for name in sorted(names):
            file = Path(folder, name)
            yield below / name, partial(_read_file, file) if stat.S_ISREG(file.lstat().st_mode) else None


def _raise(error: OSError) -> NoReturn:
    """A folder that cannot be read is not one that is not there."""
    raise error


def _open(file: Path) -> io.BufferedReader:
    """Open a file, and no link: that may lead to the work of another, or to what never ends."""
    return open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")


def _read_file(file: Path, most: int) -> bytes:
    with _open(file) as opened:
        return opened.read(most + 1)


def _in_archive(path: Path) -> _Collected:
    if not stat.S_ISREG(path.lstat().st_mode):
        got = f"{_shown(path.name)} is a link or a device"
        raise Refused(f"expected an archive that lies there, but {got}; {tell_instead()}")
    if (size := path.stat().st_size) > MAX_ARCHIVE_BYTES:
        raise Refused(f"expected an archive of at most {MAX_ARCHIVE_BYTES // MIB} MiB, got {size // MIB} MiB")
    is_tar = path.name.endswith(TAR)
    try:
        with _open(path) as file:
            if is_tar:
                return _Collected(_in_tar(file, path.name))
            taken = _Collected(_in_zip(file))
            zips = [name for name in taken.archives if name.lower().endswith(".zip")]
            if not taken.files and len(taken.archives) == len(zips) == 1:
                taken = _Collected(_in_zip(io.BytesIO(_read_inside(file, zips[0]))))
            return taken
    except (Refused, MemoryError):
        raise
    except Exception as error:  # both libraries raise a dozen kinds on a crafted file
        kind = "tar" if is_tar else "zip"
        expected = f"expected a {kind} archive that can be read"
        if isinstance(error, ArchiveError):
            raise Refused(f"{expected}, but {error}") from None
        raise Refused(f"{expected}, and {_shown(path.name)} is damaged, or no {kind} archive") from None


def _read_inside(file: io.BufferedReader, name: str) -> bytes:
    """The archive of this name in another one."""
    with zipfile.ZipFile(file) as archive:
        info = next(each for each in archive.infolist() if str(_checked(each.filename)) == name)
        data = read_entry(archive, info, MAX_UNPACKED_BYTES)
    if len(data) > MAX_UNPACKED_BYTES:
        raise _too_large()
    return data


def _in_zip(file: io.BufferedReader | io.BytesIO) -> Iterator[Entry]:
    # Counted before zipfile builds an object for each: every entry of the directory starts with this signature.
    if (count := file.read().count(b"PK\x01\x02")) > MAX_ENTRIES:
        raise Refused(f"expected an archive of at most {MAX_ENTRIES} files, got {count}")
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            inside = _checked(info.filename)
            is_file = stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG)
            if not info.is_dir():
                yield inside, partial(read_entry, archive, info) if is_file else None


def _in_tar(file: io.BufferedReader, name: str) -> Iterator[Entry]:
    with (
        gzip.open(file) if not name.endswith(".tar") else file as unpacked,
        tarfile.open(fileobj=_Limited(unpacked), mode="r|") as archive,
    ):
        for count, member in enumerate(archive):
            if count > MAX_ENTRIES:
                raise Refused(f"expected an archive of at most {MAX_ENTRIES} files")
            if not member.isdir():
                is_file = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE)
                yield _checked(member.name), partial(_read_member, archive, member) if is_file else None


class _Limited(io.BufferedIOBase):
    """A file of which no more than `MAX_UNPACKED_BYTES` can be read."""

    def __init__(self, file: io.BufferedIOBase) -> None:
        self.file, self.room = file, MAX_UNPACKED_BYTES

    def read(self, size: int | None = -1, /) -> bytes:
        data = self.file.read(size)
        self.room -= len(data)
        if self.room < 0:
            raise _too_large()
        return data


def _too_large() -> Refused:
    limit = f"{MAX_UNPACKED_BYTES // MIB} MiB"
    return Refused(f"expected an archive of at most {limit} when unpacked; hand in only your own code")


def _read_member(archive: tarfile.TarFile, member: tarfile.TarInfo, most: int) -> bytes:
    file = archive.extractfile(member)
    return file.read(most + 1) if file else b""


def _checked(name: str) -> PurePosixPath:
    path = PureWindowsPath(name)  # it takes both kinds of slashes, as archives do
    if path.anchor or ".." in path.parts:
        raise Refused(f"expected paths inside the submission, got {_shown(name)}")
    return PurePosixPath(path.as_posix())


def _odd_path(path: str) -> Refused:
    return Refused(f"expected printable paths of at most {MAX_PATH} characters, got {_shown(path)}")


def _shown(name: str) -> str:
    return ascii(name[:80])


def _some(names: Collection[str]) -> str:
    return ", ".join(map(_shown, [*names][:MAX_SHOWN])) + ", ..." * (len(names) > MAX_SHOWN)


def _find_adapters(taken: _Collected) -> tuple[str, str, tuple[str, ...]]:
    """Find the submission's root, as a prefix of its paths; which of `LAYOUTS` it has; remarks on the choice."""
    folders = [PurePosixPath(file).parts[:-1] for file in taken.files]
    for depth in (0, 1, 2):
        roots = {"".join(f"{name}/" for name in parts[:depth]) for parts in folders if len(parts) >= depth}
        places = [(root, file) for root in sorted(roots) for file in LAYOUTS if root + file in taken.files]
        if len(places) == 1:
            return *places[0], ()
        if places:
            return _most_written(taken.files, places)
        if depth == 1 and len(roots) > 1:  # two folders down only where the first of them is around everything
            break
    links = [link for link in taken.links if link.endswith("adapters.py")]
    found = [file for file in taken.files if file.endswith("adapters.py")] or [*taken.files]
    got = [f"{_shown(link)} is a link or a device" for link in links]
    got += [f"there is {each}" for each in (*taken.kinds, *map(_shown, taken.archives))]
    raise Refused(
        "expected adapters.py, or tests/adapters.py, at the root of the submission or one folder down"
        + (f", got {_some(sorted(found))}" if found else ", got no Python file")
        + "".join(f"; {each}" for each in sorted(got)[:MAX_SHOWN])
    )


def _most_written(files: dict[str, bytes], places: list[tuple[str, str]]) -> tuple[str, str, tuple[str, ...]]:
    written = {place: _written(files["".join(place)]) for place in places}
    root, file = best = max(places, key=written.__getitem__)  # the first of those that are equal
    rivals = sorted({other for other, name in places if other != root and (written[other, name] or not written[best])})
    if rivals:
        several = ", ".join(map(_shown, sorted({root, *rivals})))
        raise Refused(f"expected one submission, but there are adapters in {several}; hand in one of them")
    others = " and ".join(f"{_shown(''.join(place))} ({written[place]} written)" for place in places if place != best)
    return root, file, (f"graded with {_shown(root + file)} ({written[best]} functions written), not with {others}",)


def _written(source: bytes) -> int:
    """Count the functions `run_...` in a file that do more than raise NotImplementedError."""
    names: list[str | None] = []
    for node in _parse(source if len(source) <= MAX_ADAPTERS_BYTES else b"").body:
        match node:
            case ast.FunctionDef(name=name, body=statements):
                names += [name] * (not all(isinstance(each, ast.Raise | ast.Pass | ast.Expr) for each in statements))
            case ast.ImportFrom(names=aliases):
                names += [alias.asname or alias.name for alias in aliases]
            case ast.Assign(targets=targets):
                names += [getattr(target, "id", None) for target in targets]
    return len({name for name in names if name and name.startswith("run_")})


def _parse(source: bytes) -> ast.Module:
    """The tree of a file; nothing is in it if no parser likes that."""
    try:
        with warnings.catch_warnings(action="ignore"):  # about the student's code
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])
