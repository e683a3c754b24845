"""Fingerprints of a program's syntax tree, so that what two programs share can be found.

A fingerprint is a hash of a few nodes in a row, chosen by winnowing: Schleimer, Wilkerson and Aiken, "Winnowing: Local
Algorithms for Document Fingerprinting", SIGMOD 2003. Comments, formatting, annotations, docstrings, imports and the
names that a student chose are not in it, nor is the order of functions and methods. Names of what is called on a module
or a tensor are, as in torch.exp: a copy has to keep them.
"""

import ast
import json
import multiprocessing
import resource
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from multiprocessing.connection import Connection
from typing import NamedTuple

NODES = 14  # in a fingerprint: one or two statements
WINDOW = 4  # of so many fingerprints in a row, one is kept
MAX_SOURCE_BYTES = 1 << 18  # of a submission; the shortest files come first
CPU_SECONDS, MEMORY_BYTES = 5, 1 << 30  # for that: a small file can cost a parser much, or end it

NOT_CODE = (ast.Import, ast.ImportFrom, ast.expr_context, ast.arguments, ast.type_ignore)
SAME = {"AnnAssign": "Assign", "AsyncFunctionDef": "FunctionDef"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)


class Fingerprint(NamedTuple):
    """The hash of some nodes, and the lines on which they are."""

    hash: int
    first: int
    last: int


def fingerprints(source: bytes, window: int = WINDOW) -> Iterator[Fingerprint]:
    """Compute the fingerprints of a source; with a `window` of 1, all that it could have.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: it cannot be parsed.
    """
    with warnings.catch_warnings(action="ignore"):  # about the student's code
        tree = ast.parse(source)
    for part in _parts(tree):
        nodes = list(_nodes(part))
        grams = [nodes[start : start + NODES] for start in range(len(nodes) - NODES + 1)]
        hashes = [_hash("\n".join(word for word, _ in gram)) for gram in grams]
        width = min(window, len(hashes))
        starts = range(len(hashes) - width + 1) if hashes else ()
        kept = {min(range(at, at + width), key=lambda i: (hashes[i], -i)) for at in starts}
        for number in sorted(kept):
            lines = [line for _, line in grams[number] if line]
            yield Fingerprint(hashes[number], min(lines, default=1), max(lines, default=1))


def fingerprints_apart(sources: Mapping[str, bytes]) -> tuple[dict[str, list[Fingerprint]], list[str]]:
    """Compute those of each source of a submission, in a process that a hostile source may end.

    Returns:
        Them by name of the file, and the names of files that cannot be read as Python in the time and memory allowed.
    """
    fork = multiprocessing.get_context("fork")
    receive, send = fork.Pipe(duplex=False)
    child = fork.Process(target=_send_fingerprints, args=(send, sources))
    child.start()
    send.close()
    found: dict[str, list[Fingerprint]] = {}
    try:
        while True:
            name, prints = json.loads(receive.recv_bytes())
            found[name] = [Fingerprint(*each) for each in prints]
    except EOFError:  # it has said all, or has been ended
        child.join()
    return found, sorted(sources.keys() - found)


def _send_fingerprints(pipe: Connection, sources: Mapping[str, bytes]) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    room = MAX_SOURCE_BYTES
    for name, source in sorted(sources.items(), key=lambda item: len(item[1])):
        room -= len(source)
        if room >= 0:
            with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
                pipe.send_bytes(json.dumps([name, list(fingerprints(source))]).encode())


def _parts(tree: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[list[ast.stmt]]:
    """The statements of each function and method, and of the module and each class what is outside of these."""
    own: list[ast.stmt] = []
    for statement in tree.body:
        if isinstance(statement, DEFINITIONS) and not isinstance(tree, FUNCTIONS):
            yield from _parts(statement)
        elif not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            own.append(statement)
    yield own


def _nodes(part: Sequence[ast.AST]) -> Iterator[tuple[str, int]]:
    """List what counts of each node, and its line, in the order in which they are written."""
    waiting = [*reversed(part)]
    while waiting:  # a recursive function would meet its limit
        node = waiting.pop()
        if not isinstance(node, NOT_CODE):
            yield _word(node), getattr(node, "lineno", 0)
            fields = [value for name, value in ast.iter_fields(node) if name not in ("annotation", "returns")]
            children = [child for value in fields for child in (value if isinstance(value, list) else [value])]
            waiting += [child for child in reversed(children) if isinstance(child, ast.AST)]


def _word(node: ast.AST) -> str:
    kind = type(node).__name__
    match node:
        case ast.Attribute(value=ast.Name(id="self")):
            return kind
        case ast.Attribute(attr=name, ctx=ast.Load()):
            return f"{kind} {name}"
        case ast.Constant(value=int() | float() | complex() | None as value):
            return f"{kind} {value!r}"
    return SAME.get(kind, kind)


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(errors="replace"), digest_size=7).digest())
