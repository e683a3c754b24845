"""Write what students read: `results.json`, and feedback in Markdown."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from cs336_kit.engine.assignment import Problem
from cs336_staff.grading.atomic import write_atomically
from cs336_staff.grading.blocks import MAX_DUMP, cut_block, fence_lines, quote_code
from cs336_staff.grading.grades import Grade, account_for, say_points
from cs336_staff.grading.grading import Grading
from cs336_staff.grading.results_json import results
from cs336_staff.grading.sections import Kind, printed, remarks, sections

MAX_LINES = 100  # of feedback.md: what students take in
PLAIN = r"[^\w ,.:%-]"  # of names, what may mean something in Markdown

# Lines of feedback by their turn: a later turn has more lines, which take the place of the earlier ones if there is
# room. What has the first turn is there in any case.
Block = dict[int, list[str]]
FIRST, LINE, WHOLE, LAST = 0, 1, 2, 1_000


def write_reports(
    folder: Path, grading: Grading, problems: Mapping[str, Problem], grades: Sequence[Grade] = ()
) -> None:
    """Write `results.json` and `feedback.md` of one submission; a file is there whole or not at all.

    Args:
        folder: for them.
        grading: the submission.
        problems: by id, with public and hidden tests.
        grades: those of its students.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "results.json", json.dumps(results(grading, problems, grades), indent=1))
    write_atomically(folder / "feedback.md", feedback(grading, problems, grades))


def feedback(grading: Grading, problems: Mapping[str, Problem], grades: Sequence[Grade] = ()) -> str:
    """Write what the student reads: points, findings, an example of each kind of failure, and what the code printed.

    Findings are whole. For the rest there is room up to `MAX_LINES` lines.
    """
    head = [f"# {quote_code(grading.submission)}: {say_points(grading, grades)}", ""]
    head += ["| Problem | Points | Tests passed |", "|---|---:|---:|"]
    blocks = [_show_text(remark, WHOLE) for remark in remarks(grading)]
    for section in sections(grading, problems):
        head.append(f"| {section.title} | {section.points:.2f} / {section.problem.points:g} | {section.state} |")
        if section.kinds:
            blocks.append({FIRST: ["", f"## {section.problem.title}"]})
        findings = (cut_block("\n".join(each.lines), MAX_LINES) for each in section.explanations)
        blocks += [{FIRST: ["", *fence_lines(lines)]} for lines in findings]
        blocks += [_show_kind(kind, number) for number, kind in enumerate(section.kinds)]
    for what, points in (("Points", f"{grading.points:.2f} / {grading.maximum:g}"), *account_for(grades)):
        head.append(f"| **{re.sub(PLAIN, ' ', what)}** | **{points}** | |")
    blocks += [_show_text(text, LAST) for text in printed(grading)]
    return "\n".join(_fit([{FIRST: head}, *blocks])) + "\n"


def _show_kind(kind: Kind, number: int) -> Block:
    """A line, and below it an example if there is more to tell: the first kind of each problem has the first turn."""
    names = f"{len(kind.results)} tests" if kind.told and len(kind.results) > 1 else kind.names
    line = [*([] if number else [""]), f"- {quote_code(kind.headline)}{f': {names}' if names else ''}"]
    return {LINE: line, WHOLE + number: [*line, "", *fence_lines(kind.example)]} if kind.example else {LINE: line}


def _show_text(text: str, turn: int) -> Block:
    """The first line of a text, and all of it, as long as a dump may be."""
    first, *others = text.splitlines()
    whole = ["", *fence_lines(cut_block(text, MAX_DUMP))]
    return {LINE: ["", f"- {quote_code(first)}{' ...' * bool(others)}"]} | ({turn: whole} if others else {})


def _fit(blocks: Sequence[Block]) -> list[str]:
    """The lines of all blocks; room is given turn by turn, and in each to the first blocks first."""
    shown: list[list[str]] = [[] for _ in blocks]
    for turn in sorted({turn for block in blocks for turn in block}):
        for i, block in enumerate(blocks):
            lines = block.get(turn, shown[i])
            if turn == FIRST or sum(map(len, shown)) - len(shown[i]) + len(lines) <= MAX_LINES - 2:
                shown[i] = lines
    more = [] if all(shown) else ["", f"There is more, but {MAX_LINES} lines are enough to start with."]
    return [*(line for lines in shown for line in lines), *more]
