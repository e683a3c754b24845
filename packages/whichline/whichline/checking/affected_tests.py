"""Find the problems whose results a save can change: their tests reach code that has changed.

A test reaches every definition that its source names, every definition that those name, and so on. It also reaches all
code that runs when a file is imported, which is everything but the bodies of functions. This is more than the test
runs. It is less only if the code builds a name while it runs.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from whichline.engine.assignment import Problem, list_own_code


@dataclass(frozen=True)
class Part:
    """A statement of a file."""

    reads: str  # a digest of its code
    gives: frozenset[str]  # the names that it defines
    mentions: frozenset[str]  # the names that it uses


def take_fingerprints(root: Path, problems: Iterable[Problem]) -> dict[str, str]:
    """A digest of all code that the tests of each problem reach; no digests if a file is not valid Python.

    Comments and line numbers make no difference.
    """
    try:
        paths = (*sorted((root / "tests").glob("test_*.py")), *list_own_code(root))
        files = [_parse(path.read_bytes()) for path in paths]
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


@lru_cache(1000)
def _parse(source: bytes) -> tuple[Part, tuple[Part, ...]]:
    """Read the code that runs when a file is imported, and each statement of the file."""
    tree = ast.parse(source)
    parts = tuple(map(_read, tree.body))
    _Outside().visit(tree)
    # Imports run, too, but a test reaches the names in one only if it uses the name that the import defines.
    other = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    return Part(_digest(tree), frozenset(), _read(ast.Module(other, [])).mentions), parts


class _Outside(ast.NodeTransformer):
    """Removes the bodies of functions."""

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
        gives = {node.name}  # the other names are local
    return Part(_digest(node), frozenset(gives), frozenset(mentions))


def _digest(node: ast.AST) -> str:
    return sha256(ast.dump(node).encode()).hexdigest()
