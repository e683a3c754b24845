"""Calls in the student's files that pass other arguments than a `def` takes, or in another order."""

import ast
import linecache
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from traceback import FrameSummary

from whichline.engine.assignment import list_own_code

NOT_MATCHED = r"([\w.]+)\(\) (?:missing|takes|got an unexpected|got multiple)"  # what a TypeError says of a call


def compare_with_definition(message: str, frames: Sequence[FrameSummary], root: Path) -> str:
    """Say how the `def` reads that a call does not fit, or that takes in another order what the call names.

    Args:
        message: of the error.
        frames: the student's lines that it went through, with files relative to the root.
        root: the folder of the assignment.
    """
    names = {path.relative_to(root).as_posix() for path in list_own_code(root)}
    trees = {}
    for name in names.union(frame.filename for frame in frames):
        with suppress(SyntaxError):  # what is imported from memory is in no folder
            trees[name] = ast.parse("".join(linecache.getlines(str(root / name))))
    if found := re.search(NOT_MATCHED, message):
        return next((f"The definition is `{_head(node)}` in {place}." for place, node in _find(trees, found[1])), "")
    for caller, callee in pairwise(frames):
        for place, node in _find(trees, callee.name):
            takes = [each.arg for each in node.args.args if each.arg != "self"]
            for call in _calls(trees[caller.filename], caller.lineno or 0, callee.name):
                given = [getattr(each, "id", "") for each in call.args]
                if swapped := _swap(takes, given):
                    its, name = swapped
                    return (
                        f"The arguments are in another order than the parameters: {caller.filename}:{call.lineno} "
                        f"passes `{name}` for `{its}` of `{_head(node)}` in {place}."
                    )
    return ""


def _swap(takes: Sequence[str], given: Sequence[str]) -> tuple[str, str] | None:
    """The first parameter that gets an argument with the name of another one, while that gets one with its name."""
    gets = {its.lower(): name.lower() for its, name in zip(takes, given, strict=False)}
    return next(
        (
            (its, name)
            for its, name in zip(takes, given, strict=False)
            if its.lower() != name.lower() in gets and its.lower() in gets.values()
        ),
        None,
    )


def _find(trees: dict[str, ast.Module], name: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of this name, which may have a class before it, and where they are."""
    owner, _, function = name.rpartition(".")
    for file, tree in trees.items():
        for node in ast.walk(tree):
            inside = not owner or (isinstance(node, ast.ClassDef) and node.name == owner)
            for each in ast.iter_child_nodes(node) if inside else ():
                if isinstance(each, ast.FunctionDef) and each.name == function:
                    yield f"{file}:{each.lineno}", each


def _calls(tree: ast.Module, line: int, name: str) -> Iterator[ast.Call]:
    """The calls in a line of a function, or of a class, whose `__init__` is called."""
    name = name.removesuffix(".__init__").rpartition(".")[2]
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    for call in calls:
        if call.lineno <= line <= (call.end_lineno or 0) and name in ast.unparse(call.func).rpartition("."):
            yield call


def _head(node: ast.FunctionDef) -> str:
    """The `def` without its annotations."""
    bare = ast.parse(ast.unparse(node.args).join(("def f(", "): pass"))).body[0]
    assert isinstance(bare, ast.FunctionDef)
    for each in ast.walk(bare.args):
        if isinstance(each, ast.arg):
            each.annotation = None
    return f"def {node.name}({ast.unparse(bare.args)})"
