"""The handout's texts: with the points of the problems, and without those that the course leaves out.

A problem has a section, from one `## ` to the next, in which a line begins with **Problem `id`. A line of the contents
links to sections or to a text, and a row of a table has `id` in a cell.

`uv run python -m whichline_grader.release.texts` writes the points into the texts of this tree; a test compares them.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from whichline.engine.assignment import Problem, find_root, load_problems
from whichline.engine.errors import CourseworkError

STATED = re.compile(r"^\*\*Problem `(\w+)`", re.MULTILINE)
SECTION = re.compile(r"^(?=## )", re.MULTILINE)
LISTED = re.compile(r"- \[.*\]\((\S+)\) \(|\|.* \| `(\w+)` \|")
IN_BRACKETS = re.compile(r"\((bonus, )?[\d.+ ]+ points?\)")
IN_CELL = re.compile(r"\| [\d.]+( \(bonus\))? \|")


def write_texts(texts: dict[str, str], problems: dict[str, Problem], left_out: Collection[str] = ()) -> dict[str, str]:
    """Write the points of the problems into texts, and leave out what is `left_out`.

    These are ids of other problems, whose sections and lines go, with a text that has no others; and names of files,
    which some lines begin with.
    """
    pages = {Path(name).name: STATED.findall(text) for name, text in texts.items()}
    written = {}
    for name, text in texts.items():
        sections = {section: STATED.findall(section) for section in SECTION.split(text)}
        linked = pages | {f"#{_make_anchor(section)}": ids for section, ids in sections.items()}
        kept = (section for section, ids in sections.items() if not _are_all_in(left_out, ids))
        lines = (line for section in kept for line in section.splitlines(keepends=True))
        if not _are_all_in(left_out, pages[Path(name).name]):
            written[name] = "".join(_write_line(line, linked, problems, left_out) for line in lines)
    return written


def check_texts(texts: Mapping[str, str], problems: Collection[str]) -> None:
    """Raise CourseworkError unless each problem, and no other, has its line in the texts."""
    stated = STATED.findall("\n".join(texts.values()))
    for id in problems:
        if (times := stated.count(id)) != 1:
            raise CourseworkError(f"docs: {times} lines begin with **Problem `{id}`, expected 1: its section's")
    for id in stated:
        if id not in problems:
            what = f"a line begins with **Problem `{id}`, which is not handed out"
            raise CourseworkError(f"docs: {what}; give it a section of its own")


def _make_anchor(section: str) -> str:
    """The name under which a heading is linked to."""
    return re.sub(r"[^\w -]", "", section.partition("\n")[0].removeprefix("## ").lower()).replace(" ", "-")


def _are_all_in(left_out: Collection[str], ids: Collection[str]) -> bool:
    return bool(ids) and all(id in left_out for id in ids)


def _write_line(line: str, linked: dict[str, list[str]], problems: dict[str, Problem], gone: Collection[str]) -> str:
    """Write the points of the problems that a line names; nothing if it lists what is left out."""
    listed = LISTED.match(line)
    ids = (linked.get(listed[1], []) if listed[1] else [listed[2]]) if listed else []
    if _are_all_in(gone, ids) or _are_all_in(gone, line.split()[:1]):
        return ""
    if not (named := [problems[id] for id in ids or STATED.findall(line) if id in problems]):
        return line
    points, bonus = " + ".join(f"{problem.points:g}" for problem in named), any(problem.bonus for problem in named)
    line = IN_BRACKETS.sub(f"({'bonus, ' * bonus}{points} point{'s' * (points != '1')})", line)
    return IN_CELL.sub(f"| {points}{' (bonus)' * bonus} |", line)


if __name__ == "__main__":
    root = find_root(Path.cwd())
    texts = {str(path): path.read_text(encoding="utf-8") for path in root.glob("docs/*.md")}
    for name, text in write_texts(texts, load_problems(root, left_out=None)).items():
        Path(name).write_text(text, encoding="utf-8")
