"""Leaving out what belongs to problems that the course does without, and what the assignment keeps from students."""

import ast
import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path

from whichline.engine.assignment import ADAPTERS, load_problems
from whichline.engine.assignment import FILE_NAME as ASSIGNMENT
from whichline.engine.errors import CourseworkError
from whichline_grader.release.texts import check_texts, write_texts

PICTURES = "docs/pictures/"
TABLE = re.compile(r"^(?=\[\[problem\]\])", re.MULTILINE)
POINTS = re.compile(r"^points = [\d.]+", re.MULTILINE)
HIDDEN = re.compile(r"^\[problem\.hidden\]\n(?:.+\n)*\n?|^hidden = .*\n", re.MULTILINE)


def remove_left_out(root: Path, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Leave out files, functions, tables and sections of the problems that the course in `root` leaves out.

    The texts get the points of the others, the assignment loses the weights of hidden tests, and pictures that no text
    shows go.
    """
    problems, gone = (load_problems(root, left_out=each) for each in (False, True))
    belonging = _list_files(root, gone) if gone else set[str]()
    kept = {name: content for name, content in files.items() if name not in belonging}
    kept[ASSIGNMENT] = cut_assignment(kept[ASSIGNMENT].decode(), gone).encode()
    if gone:
        from whichline_grader.authoring.spec import load_specs

        functions = {call for id in gone for call in load_specs()[id].calls}
        kept[ADAPTERS] = cut_functions(kept[ADAPTERS].decode(), functions).encode()
    texts = {name: content.decode() for name, content in kept.items() if name.endswith(".md")}
    written = write_texts(texts, problems, {*gone, *belonging})
    check_texts(written, problems)
    every = "".join(written.values())
    unseen = {name for name in kept if name.startswith(PICTURES) and f"({name.removeprefix('docs/')})" not in every}
    return {name: content for name, content in kept.items() if name not in texts.keys() | unseen} | {
        name: text.encode() for name, text in written.items()
    }


def cut_assignment(text: str, left_out: Collection[str]) -> str:
    """Leave out the tables of problems, and what the others say of hidden tests."""
    start, *tables = TABLE.split(text)
    stated = [tomllib.loads(table)["problem"][0] for table in tables]
    kept = [table for table, problem in zip(tables, stated, strict=True) if problem["id"] not in left_out]
    required = [each for each in stated if each["id"] not in left_out and not each.get("bonus")]
    start = POINTS.sub(f"points = {sum(each.get('points', 0) for each in required):g}", start)
    cut = HIDDEN.sub("", "".join([start, *kept])).rstrip() + "\n"
    if any("hidden" in problem for problem in tomllib.loads(cut)["problem"]):
        raise CourseworkError(f"{ASSIGNMENT}: weights of hidden tests would reach students; write [problem.hidden]")
    return cut


def cut_functions(source: str, names: Collection[str]) -> str:
    lines = source.splitlines(keepends=True)
    for node in reversed(ast.parse(source).body):
        if isinstance(node, ast.FunctionDef) and node.name in names:
            rest = range(node.end_lineno or 0, len(lines))  # begins with the comments at the function's end
            del lines[node.lineno - 1 : next((n for n in rest if lines[n].strip() and lines[n][0] != " "), len(lines))]
    return "".join(lines)


def _list_files(root: Path, gone: Collection[str]) -> set[str]:
    """Name what some problems have alone: the files that students would write, tests and cases."""
    from whichline.engine.suite import load_suite  # imports torch

    problems = load_problems(root, left_out=None)
    belongs = {id: {*problem.files, *problem.beside} for id, problem in problems.items()}
    for test in load_suite(root, [root / "tests"], problems).tests:
        belongs[test.problem] |= {test.place[0], *(f"fixtures/{case.name}.safetensors" for case in test.cases())}
    shared = set[str]().union(*(belongs[id] for id in problems.keys() - set(gone)))
    return set[str]().union(*(belongs[id] for id in gone)) - shared
