"""Handing out without the problems that `assignment.toml` marks `left_out`: what belongs to them alone is cut.

That is their tests and cases, the files that students write for them, their functions in `adapters.py`, their tables in
`assignment.toml`, their sections of the handout's text, and every line that lists one of these files.
"""

import ast
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from cs336_kit.engine.assignment import FILE_NAME, load_problems
from cs336_kit.engine.suite import load_suite

PROBLEM = re.compile(r"\*\*Problem `(\w+)`")


@dataclass(frozen=True)
class LeftOut:
    """Everything that belongs to the problems that are left out and to no other.

    Args:
        problems: their ids.
        files: names of files.
        calls: functions of `adapters.py`.
    """

    problems: Collection[str]
    files: Collection[str]
    calls: Collection[str]


def find_left_out(root: Path) -> LeftOut:
    """Find what belongs to the problems that the assignment in `root` leaves out."""
    problems, gone = load_problems(root), load_problems(root, left_out=True)
    tests = {test for problem in gone.values() for test in problem.tests}
    files = {file for problem in gone.values() for file in problem.files}
    files -= {file for problem in problems.values() for file in problem.files}
    for path in (root / "tests").glob("test_*.py"):
        if _functions(path.read_text(encoding="utf-8"), "test_").keys() <= tests:
            files.add(path.relative_to(root).as_posix())
    kept: set[str] = set()
    cut: set[str] = set()
    for test in load_suite(root, [root / "tests"], problems).tests if gone else ():
        for case in test.cases():
            (cut if test.function in tests else kept).update((f"fixtures/{case.name}.safetensors", case.call))
    cut -= kept
    cases = {name for name in cut if name.startswith("fixtures/")}
    return LeftOut(gone.keys(), files | cases, cut - cases)


def cut(files: Mapping[str, bytes], left_out: LeftOut) -> dict[str, bytes]:
    """The files of a handout without what is left out."""
    kept = {name: content for name, content in files.items() if name not in left_out.files}
    for name in kept if left_out.problems else ():
        if name in (FILE_NAME, "adapters.py") or name.endswith(".md"):
            text = kept[name].decode()
            if name == FILE_NAME:
                text = _without_tables(text, left_out.problems)
            elif name == "adapters.py":
                text = _without_functions(text, left_out.calls)
            else:
                text = _without_sections(text, left_out)
            kept[name] = text.encode()
    return kept


def _without_tables(text: str, problems: Collection[str]) -> str:
    head, *tables = text.split("[[problem]]\n")
    kept = [table for table in tables if not any(f'id = "{id}"' in table.splitlines() for id in problems)]
    return "[[problem]]\n".join([head, *kept])


def _without_functions(source: str, names: Collection[str]) -> str:
    lines = source.splitlines(keepends=True)
    for name, node in _functions(source, "run_").items():
        if name in names:
            end = node.end_lineno or node.lineno
            lines[node.lineno - 1 : end] = [""] * (end - node.lineno + 1)
    return re.sub(r"\n{4,}", "\n\n\n", "".join(lines))


def _without_sections(text: str, left_out: LeftOut) -> str:
    """Without sections of which every problem is left out, and the lines that list them or a file that is gone."""
    listed = {part for file in left_out.files for part in (file, Path(file).name)}
    for level in ("##", "###"):
        for section in re.findall(rf"^{level} .*?(?=^#{{2,{len(level)}}} |\Z)", text, re.MULTILINE | re.DOTALL):
            ids = PROBLEM.findall(section)
            if ids and set(ids) <= set(left_out.problems):
                text = text.replace(section, "")
                listed.add(f"[{section.split()[1]}")
    listed |= {f"`{id}`" for id in left_out.problems}
    return "".join(line for line in text.splitlines(keepends=True) if not listed & _first(line))


def _first(line: str) -> set[str]:
    """The first word of a line, after the mark of a list; of a row, the second cell."""
    if line.startswith("| "):
        return {*line.split(" | ")[1:2]}
    return {*line.removeprefix("- ").split()[:1]}


def _functions(source: str, prefix: str) -> dict[str, ast.FunctionDef]:
    body = ast.parse(source).body
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith(prefix)}
