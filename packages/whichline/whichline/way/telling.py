"""The place of a finding as a student knows it: the file below the folder of the assignment, the line, and a mark."""

import ast
import linecache
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whichline.engine.finding import Finding, mark


def show_place(file: str, function: str, node: ast.expr | ast.stmt | ast.arg, root: Path) -> dict[str, Any]:
    """The fields of a finding about an expression; of one on several lines it is the first of them."""
    name, columns = name_file(file, root), find_columns(file, node)
    code = linecache.getline(file, node.lineno).rstrip("\n")
    return {
        "file": name,
        "line": node.lineno,
        "function": function,
        "columns": columns,
        "code": (f"{name}:{node.lineno}, in {function}", *mark(code, *columns)),
    }


def find_columns(file: str, node: ast.expr | ast.stmt | ast.arg) -> tuple[int, int]:
    """The columns of an expression in its first line."""
    code = linecache.getline(file, node.lineno).rstrip("\n").encode()
    end = node.end_col_offset if node.end_lineno == node.lineno else len(code)
    return len(code[: node.col_offset].decode()), len(code[:end].decode())


def name_file(file: str, root: Path) -> str:
    """The file as the student knows it."""
    path = Path(file)
    if path.is_relative_to(root):
        return path.relative_to(root).as_posix()
    return path.name if path.exists() else "your cell"


def place_of(finding: Finding) -> tuple[str, int, tuple[int, int]]:
    """The place where the mark of a finding stands."""
    return finding.file, finding.line, finding.columns


def are_told(found: Sequence[Finding], before: Sequence[Finding]) -> bool:
    """Tell whether something was found, and all of it at places that are told of earlier problems."""
    told = {place_of(each) for each in before if each.file}
    return bool(found) and all(place_of(each) in told for each in found)


def count_failing(some: int, failing: int, does: str, do: str, more: str = "") -> str:
    """Say what some of the failing tests do: "both failing tests pass", "1 of the 3 failing tests stops"."""
    if some < failing:
        return f"{some}{more} of the {failing} failing tests {does if some == 1 else do}"
    whole = {1: f"the failing test {does}", 2: f"both failing tests {do}"}
    return whole.get(failing, f"all {failing} failing tests {do}")
