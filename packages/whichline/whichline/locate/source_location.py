"""Showing where a finding is: the file, relative to the assignment, the line, and a mark under the expression."""

import ast
import linecache
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from whichline.engine.finding import WIDTH, Finding, mark

RAISES = "raises-"  # in the id of a finding about an error, after the problem
MOST_LINES = 6  # of an expression, after its first one


def read_tree(file: str) -> ast.Module:
    """Parse a file, from the lines that tracebacks show."""
    return ast.parse("".join(linecache.getlines(file)))


def list_assignments(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """List the targets of the assignments among some nodes, each with what is assigned to it."""
    yield from ((ast.unparse(each.targets[0]), each.value) for each in nodes if isinstance(each, ast.Assign))


def show_place(file: str, function: str, node: ast.expr | ast.stmt | ast.arg, root: Path) -> dict[str, Any]:
    """Return the fields of a finding about an expression; line and columns are of its first line."""
    name, columns = name_file(file, root), find_columns(file, node)
    first = mark(linecache.getline(file, node.lineno).rstrip("\n"), *columns)
    code = (f"{name}:{node.lineno}, in {function}", *first, *show_rest(file, node))
    return {"file": name, "line": node.lineno, "function": function, "columns": columns, "code": code}


def show_rest(file: str, node: ast.expr | ast.stmt | ast.arg) -> list[str]:
    """List the lines of an expression after the first one, with their indentation relative to that."""
    first = linecache.getline(file, node.lineno)
    indent = len(first) - len(first.lstrip())
    numbers = range(node.lineno + 1, (node.end_lineno or 0) + 1)
    lines = [linecache.getline(file, number).rstrip() for number in numbers[:MOST_LINES]]
    lines = [line[min(indent, len(line) - len(line.lstrip())) :] for line in lines]
    short = [f"{line[: WIDTH - 2]} …" if len(line) > WIDTH else line for line in lines]
    return [f"    {line}" for line in [*short, *["…"] * (len(numbers) > MOST_LINES)]]


def find_columns(file: str, node: ast.expr | ast.stmt | ast.arg) -> tuple[int, int]:
    """Return the columns of an expression in its first line."""
    code = linecache.getline(file, node.lineno).rstrip("\n").encode()
    end = node.end_col_offset if node.end_lineno == node.lineno else len(code)
    return len(code[: node.col_offset].decode()), len(code[:end].decode())


def name_file(file: str, root: Path) -> str:
    """Name a file as the student knows it."""
    path = Path(file)
    if path.is_relative_to(root):
        return path.relative_to(root).as_posix()
    return path.name if path.exists() else "your cell"


def find_same(each: Finding, before: Sequence[Finding]) -> Finding | None:
    """Find an earlier problem's finding that says the same about the same place."""
    at, here = (each.line, each.columns), [one for one in before if each.file and one.file == each.file]
    there = [one for one in here if each.line in one.likewise or at == (one.line, one.columns)]
    return next((earlier for earlier in there if _is_same(earlier, each)), None)


def _is_same(earlier: Finding, each: Finding) -> bool:
    """Tell whether two findings at one place are about the same mistake.

    A wrong value in two problems is: their references name the checkpoint differently.
    """
    if earlier.step or each.step:
        return earlier.step == each.step or bool(earlier.step and each.step and earlier.section != each.section)
    kinds = [finding.id.partition("-")[2] for finding in (earlier, each)]
    if kinds[0].startswith(RAISES):  # the rest of the id, and the last line, say in which calls
        both = [each.said[:-1] or each.said for each in (earlier, each)]
        one, other = ({re.sub(r"[^A-Za-z]+", " ", line) for line in said} for said in both)
        return bool(one & other)
    return kinds[0] == kinds[1]


def count_failing(some: int, failing: int, does: str, do: str, more: str = "") -> str:
    """Say what some of the failing tests do: "both failing tests pass", "1 of the 3 failing tests stops"."""
    if some < failing:
        return f"{some}{more} of the {failing} failing tests {does if some == 1 else do}"
    whole = {1: f"the failing test {does}", 2: f"both failing tests {do}"}
    return whole.get(failing, f"all {failing} failing tests {do}")
