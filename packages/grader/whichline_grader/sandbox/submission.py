"""Read what a student handed in: a file, a folder, a git checkout or an archive. Only Python source is kept."""

import ast
import hashlib
import re
import warnings
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path, PurePosixPath

from whichline.engine.assignment import ADAPTERS, get_assignment, get_root
from whichline_grader.sandbox.files import (
    MAX_SHOWN,
    MAX_UNPACKED_BYTES,
    MIB,
    NO_CODE,
    Collected,
    Refused,
    list_folder,
    read_archive,
    read_file,
    show_name,
    show_names,
)

MAX_ADAPTERS_BYTES = MIB // 16  # of an adapters.py that is parsed, if there are several
MAX_PARSED_BYTES = MIB // 4  # of all own files together: a syntax tree takes hundreds of times the memory
MAX_FUNCTIONS = 60  # that feedback may name: a hidden input can choose the name, and one of 60 spells six bits
MAX_LINE = 200  # characters of a line in a report
GIVEN = "given"  # the folder of complete starter code in the student's package
# Modules that take long to import, and the words that a submission that needs them contains. torch imports its compiler
# for checkpoints, optimizers and most of torch.func, too.
SLOW_IMPORTS = {
    **{name: re.compile(rb"\b%b\b" % name.encode()) for name in ("beartype", "einx", "triton")},
    "torch._dynamo": re.compile(
        rb"\bcheckpoint|\boptim\b|Optimizer|\bfunc(\.| import | as )(?!functional_call)|functorch|profiler|compiler"
        rb"|dynamo|torch\.(cond|export|testing)|assert_close|flex_attention|higher_order"
    ),
}
LAYOUTS = {"adapters.py": "adapters", "tests/adapters.py": "tests.adapters", "src/adapters.py": "adapters"}


@dataclass(frozen=True)
class Submission:
    """The files that are graded."""

    name: str  # of the file or folder that was handed in
    files: dict[str, bytes]  # path below the submission's root, with slashes -> source
    adapters: str  # the module with the adapters, `adapters` or `tests.adapters`
    remarks: tuple[str, ...] = ()  # on files that were left out or chosen, for the student and for staff

    @cached_property
    def sha256(self) -> str:
        digest = hashlib.sha256()
        for path, source in sorted(self.files.items()):
            digest.update(f"{len(path)} {path} {len(source)} ".encode() + source)
        return digest.hexdigest()

    @cached_property
    def slow_imports(self) -> list[str]:
        """List the slow modules that the zygote should import before the fork, or the first call would pay for them."""
        sources = (source for path, source in self.files.items() if not is_the_courses(path, source))
        own = {line for source in sources for line in source.split(b"\n")}
        own.difference_update((get_root() / ADAPTERS).read_bytes().split(b"\n"))
        return [module for module, words in SLOW_IMPORTS.items() if any(map(words.search, own))]

    def line(self, file: str, number: int) -> str:
        """One line of the source without its indentation, cut if it is long; empty if there is no such line."""
        lines = self._lines.get(file, [])
        return lines[number - 1].strip()[:MAX_LINE] if 0 < number <= len(lines) else ""

    @cached_property
    def functions(self) -> Collection[tuple[str, str]]:
        """File and name of the student's own functions, at most `MAX_FUNCTIONS`, in the order of the files."""
        found: dict[tuple[str, str], None] = {}
        bytes_left = MAX_PARSED_BYTES
        for path, source in sorted(self.files.items()):
            if not is_the_courses(path, source) and (bytes_left := bytes_left - len(source)) >= 0:
                nodes = (node for node in ast.walk(_parse(source)) if isinstance(node, ast.FunctionDef))
                found |= dict.fromkeys((path, node.name) for node in nodes)
        return [*found][:MAX_FUNCTIONS]

    @cached_property
    def _lines(self) -> dict[str, list[str]]:
        """Lines as Python counts them: str.splitlines also splits at form feeds and other characters."""
        ends = re.compile(r"\r\n|\r|\n")
        return {path: ends.split(source.decode(errors="replace")) for path, source in self.files.items()}


def is_the_courses(path: str, source: bytes) -> bool:
    """Tell whether this file is the course's own, unchanged."""
    with suppress(OSError, ValueError):  # a student's path may be anything
        return (get_root() / path).read_bytes().split() == source.split()
    return False


def take_in(path: Path, files: Mapping[str, Path] | None = None) -> Submission:
    """Read the submission in `path`: a Python file (the adapters), a folder, or a zip or tar archive.

    If there are several Python `files`, by their own names, the submission is these, and `path` gives its name.

    `adapters.py` may lie at the root, in `tests/` or in `src/`, or in the same places one folder down; one folder
    around everything is ignored. If there are several, the one with the most functions written counts. Adapters.py
    counts as adapters.py if there is no other. A folder with one archive and no Python file is that archive, and so is
    a zip with one zip. Refused if the submission is hostile, broken or too large, or has no adapters.
    """
    if files and ADAPTERS not in map(str.lower, files):
        raise Refused(f"expected one archive, or adapters.py and other Python files, got {show_names(files)}")
    if files:
        taken = Collected((PurePosixPath(name), partial(read_file, files[name])) for name in sorted(files))
    elif path.is_dir():
        taken = Collected(list_folder(path))
        if not taken.files and len(taken.archives) == 1:
            taken = read_archive(path / taken.archives[0])
    elif not path.is_file():
        got = "a device, pipe or socket" if path.exists() else "a path where nothing is"
        raise Refused(f"expected a Python file, a folder or a zip archive, got {got}")
    elif path.suffix == ".py":
        taken = Collected([(PurePosixPath("adapters.py"), partial(read_file, path))])
    elif kind := NO_CODE.get(path.suffix.lower()):
        raise Refused(f"expected Python code, got {kind}")
    else:
        taken = read_archive(path)
    root, file, remarks = _find_adapters(taken)
    below = {file.removeprefix(root): source for file, source in taken.files.items() if file.startswith(root)}
    if file == "src/adapters.py":
        below.pop("adapters.py", None)  # Python would import it instead
    package = get_assignment().package
    if root.endswith(f"{package}/"):  # import statements name its files with the folder or without it
        below |= {f"{package}/{path}": source for path, source in below.items()}
    return Submission(path.resolve().name, _place_files(below), LAYOUTS[file], (*remarks, *taken.remarks))


def _place_files(files: dict[str, bytes]) -> dict[str, bytes]:
    """Put files that were handed in without their folder also where import statements look for them.

    The starter code that every student has is added beside them.
    """
    package = get_assignment().package
    if any(path.startswith(f"{package}/") for path in files):
        return files
    # Not \s, which would take quadratic time on many empty lines. Every match fits in `MAX_PATH`.
    pattern = rb"^[ \t]*(?:from|import)[ \t]+(%b(?:\.\w{1,50}){0,3})\.(\w{1,50})\b" % package.encode()
    imported = re.compile(pattern, re.MULTILINE)
    wanted = sorted({match for source in files.values() for match in imported.findall(source)})
    names = {name: f"{folder.decode().replace('.', '/')}/{name.decode()}.py" for folder, name in wanted}
    placed = {path: files[f"{name.decode()}.py"] for name, path in names.items() if f"{name.decode()}.py" in files}
    folder = f"{package}/{GIVEN}"
    paths = (get_root() / folder).glob("*.py") if placed else ()
    given = {f"{folder}/{path.name}": path.read_bytes() for path in paths}
    return {**given, **files, **placed}


def hash_refused(paths: Iterable[Path]) -> str:
    """Hash files, or the names in a folder, so that a refused submission is read again once it changes."""
    digest = hashlib.sha256()
    for path in paths:
        if path.is_file():
            with path.open("rb") as file:
                digest.update(b"%d\n" % path.stat().st_size + file.read(MAX_UNPACKED_BYTES))
        elif path.is_dir():
            with suppress(Refused):
                for inside, _ in list_folder(path):
                    digest.update(f"{inside} {(path / inside).lstat().st_size}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _find_adapters(taken: Collected) -> tuple[str, str, tuple[str, ...]]:
    """Find the submission's root, as a prefix of its paths; its file in `LAYOUTS`; remarks on the choice."""
    folders = [PurePosixPath(file).parts[:-1] for file in taken.files]
    for depth in (0, 1, 2):
        roots = {"".join(f"{name}/" for name in parts[:depth]) for parts in folders if len(parts) >= depth}
        places = [(root, file) for root in sorted(roots) for file in LAYOUTS if root + file in taken.files]
        if len(places) == 1:
            return *places[0], ()
        if places:
            return _choose_adapters(taken.files, places)
        if depth == 1 and len(roots) > 1:  # look two folders down only if the first folder is around everything
            break
    links = [link for link in taken.links if link.endswith("adapters.py")]
    found = [file for file in taken.files if file.endswith("adapters.py")] or [*taken.files]
    got = [f"{show_name(link)} is a link or a device" for link in links]
    got += [f"there is {each}" for each in (*taken.kinds, *map(show_name, taken.archives))]
    raise Refused(
        "expected adapters.py, or tests/adapters.py, at the root of the submission or one folder down"
        + (f", got {show_names(sorted(found))}" if found else ", got no Python file")
        + "".join(f"; {each}" for each in sorted(got)[:MAX_SHOWN])
    )


def _choose_adapters(files: dict[str, bytes], places: list[tuple[str, str]]) -> tuple[str, str, tuple[str, ...]]:
    written = {place: _count_written(files["".join(place)]) for place in places}
    root, file = best = max(places, key=written.__getitem__)  # the first one if several are equal
    rivals = sorted({other for other, name in places if other != root and (written[other, name] or not written[best])})
    if rivals:
        several = ", ".join(map(show_name, sorted({root, *rivals})))
        raise Refused(f"expected one submission, but there are adapters in {several}; hand in one of them")
    others = " and ".join(f"{show_name(''.join(each))} ({written[each]} written)" for each in places if each != best)
    return root, file, (f"graded with {show_name(root + file)} ({written[best]} functions written), not with {others}",)


def _count_written(source: bytes) -> int:
    """Count the `run_...` functions in a file that do more than raise NotImplementedError."""
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
    """Parse a file; an empty tree if it cannot be parsed."""
    try:
        with warnings.catch_warnings(action="ignore"):  # about the student's code
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])
