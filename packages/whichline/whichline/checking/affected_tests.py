"""Telling which problems a save can change: those whose tests reach something that reads otherwise than before.

A test reaches what its source names, what that names, and so on, wherever it is, and all that runs when a file is
imported: everything but the bodies of functions. That is more than it runs, and less only where a name is put together
while the code runs.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from whichline.engine.assignment import Problem, list_own_code


@dataclass(frozen=True)
class Part:
    """A statement of a file: a digest of how it reads, the names that it gives something to, and those it mentions."""

    reads: str
    gives: frozenset[str]
    mentions: frozenset[str]


def take_fingerprints(root: Path, problems: Iterable[Problem]) -> dict[str, str]:
    """A digest for each problem of all that its tests reach; none if one of the files cannot be read as Python.

    Comments, and where a line stands, make no difference.
    """
    try:
        files = [_parse(path.read_bytes()) for path in _list_files(root)]
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    giving: defaultdict[str, list[Part]] = defaultdict(list)
    for part in (part for _, parts in files for part in parts):
        for name in part.gives:
            giving[name].append(part)
    always = [outside for outside, _ in files]
    found = {}
    for problem in problems:
        reached, seen = set(always), {*problem.tests}.union(*(part.mentions for part in always))
        names = [*seen]
        while names:
            new = set(giving[names.pop()]) - reached
            reached |= new
            mentioned = set[str]().union(*(part.mentions for part in new)) - seen
            seen |= mentioned
            names += mentioned
        found[problem.id] = sha256("\n".join(sorted(part.reads for part in reached)).encode()).hexdigest()
    return found


def _list_files(root: Path) -> Iterator[Path]:
    yield from sorted((root / "tests").glob("test_*.py"))
    yield from list_own_code(root)


@lru_cache(1000)
def _parse(source: bytes) -> tuple[Part, tuple[Part, ...]]:
    """Read what runs when a file is imported, and each of its statements."""
    tree = ast.parse(source)
    parts = tuple(map(_read, tree.body))
    _Outside().visit(tree)
    # An import runs here, too, but what it mentions is reached by whoever mentions what it gives.
    other = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    return Part(_digest(tree), frozenset(), _read(ast.Module(other, [])).mentions), parts


class _Outside(ast.NodeTransformer):
    """Takes the bodies of functions out."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = [ast.Pass()]
        return node


def _read(node: ast.AST) -> Part:
    gives, mentions = set[str](), set[str]()
    for each in ast.walk(node):
        match each:
            case ast.alias(name, asname):
                mentions |= {*name.split(".")}
                gives.add(asname or name.partition(".")[0])
            case ast.Name(name, ast.Store()) | ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                gives.add(name)
            case ast.Name(name) | ast.Attribute(attr=name) | ast.Constant(str(name)):
                mentions.add(name)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        gives = {node.name}  # the others are its own
    return Part(_digest(node), frozenset(gives), frozenset(mentions))


def _digest(node: ast.AST) -> str:
    return sha256(ast.dump(node).encode()).hexdigest()
