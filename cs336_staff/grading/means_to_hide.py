"""List what the source of a submission could hide behind, for staff to look at; it costs nothing.

What watches a submission from inside of its process is worth only what the submission leaves of it. This is read here,
out of its reach. It finds names that are written out: whoever puts one together needs `getattr`, `eval` or
the like, and those are listed too.
"""

import ast
import warnings
from collections.abc import Iterator
from contextlib import suppress

from cs336_staff.sandbox.printable import printable
from cs336_staff.sandbox.submission import COURSES_ADAPTERS, Submission

MOST = 12  # lines that are kept of a submission
MAX_BYTES = 1 << 18  # of its source that are read: a tree takes hundreds of times the memory

LOOKS = "can look into or change what watches it"
BESIDE = "runs beside the call, where nothing is watched"
PAST = "calls a kernel past the functions that are watched"
UNNAMED = "runs or finds what the source does not name"
TOO_LONG, TOO_DEEP = (f"begins a file that cannot be read: it is {why}" for why in ("too long", "nested too deeply"))
MEANS = {
    name: means
    for means, names in {
        LOOKS: "builtins cs336_kit cs336_staff gc globals importlib inspect sys vars",
        BESIDE: "_thread asyncio concurrent multiprocessing threading torch.futures torch.jit.fork "
        "torch.multiprocessing weakref",
        PAST: "_ctypes cffi ctypes numpy.ctypeslib torch.classes torch.library torch.ops torch.utils.cpp_extension",
        UNNAMED: "compile eval exec getattr marshal operator.attrgetter operator.methodcaller pickle runpy setattr",
    }.items()
    for name in names.split()
}
FRAMES = {"cell_contents", "f_back", "f_builtins", "f_code", "f_globals", "f_locals", "gi_frame", "tb_frame"}
HARMLESS = {
    *("__all__", "__call__", "__class__", "__doc__", "__file__", "__getitem__", "__init__", "__name__", "__new__"),
    *("__post_init__", "__qualname__", "__repr__", "__setattr__", "__str__", "__version__", "gc.collect"),
    *("importlib.metadata", "importlib.resources", "sys.argv", "sys.exit", "sys.float_info", "sys.maxsize"),
    *("sys.path", "sys.platform", "sys.stderr", "sys.stdout", "sys.version", "sys.version_info"),
}


def find_means_to_hide(submission: Submission) -> tuple[str, ...]:
    """List the lines of the student's own files that could hide what they call: place, text, and what they can do.

    A file that is not Python is left out: it does not run either.
    """
    lines: list[str] = []
    room = MAX_BYTES
    own = {source: path for path, source in sorted(submission.files.items()) if not _is_the_courses(path, source)}
    for source, path in own.items():
        room -= len(source)
        for number, means in sorted(_read(source).items() if room >= 0 else [(1, TOO_LONG)]):
            lines.append(f"{path}:{number} `{printable(submission.line(path, number))}` {means}")
    more = len(lines) - MOST
    return (*lines[:MOST], *([f"and {more} more"] if more > 0 else []))


def _is_the_courses(path: str, source: bytes) -> bool:
    """Tell whether every student has this file, as it is."""
    with suppress(OSError, ValueError):  # a student's path may be anything
        return (COURSES_ADAPTERS.parent / path).read_bytes().split() == source.split()
    return False


def _read(source: bytes) -> dict[int, str]:
    """The numbers of the lines that could hide something, each with what that is."""
    try:
        with warnings.catch_warnings(action="ignore"):  # about the student's code
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return {}
    except (RecursionError, MemoryError):
        return {1: TOO_DEEP}
    return {number: means for number, name in _names(tree) if (means := _judge(name))}


def _judge(name: str) -> str:
    """Say what the use of a name could hide, or nothing."""
    parts = name.split(".")
    if any(part in FRAMES or (part[:2] == part[-2:] == "__" and part not in HARMLESS) for part in parts):
        return LOOKS
    starts = [".".join(parts[:count]) for count in (1, 2, 3)]
    if not HARMLESS.isdisjoint(starts):
        return ""
    if parts[0] == "torch" and any(part[:1] == "_" != part[1:2] for part in parts):
        return PAST
    return next((MEANS[start] for start in starts if start in MEANS), "")


def _names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of everything that is used, under the name of the module that it was imported from."""
    known: dict[str, str] = {}
    nodes = [*ast.walk(tree)]  # what is around a node comes before it
    for node in nodes:
        if isinstance(node, ast.Import):
            known |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
    inside: set[int] = set()
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name("getattr" | "setattr"), args=[owner, ast.Constant(str(name)), *_]):
                inside.add(id(node.func))
                yield node.lineno, f"{_resolve(owner, known, inside)}.{name}"
            case ast.Attribute() | ast.Name() if id(node) not in inside:
                yield node.lineno, _resolve(node, known, inside)


def _resolve(node: ast.expr, known: dict[str, str], inside: set[int]) -> str:
    """The name `a.b.c`, or `.b.c` of what has no name. Its parts are noted in `inside`: each is looked at once."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
        inside.add(id(node))
    first = known.get(node.id, node.id) if isinstance(node, ast.Name) else ""
    return ".".join([first, *reversed(attributes)])
