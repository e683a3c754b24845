"""Write what students read: `results.json`, and feedback in Markdown."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cs336_kit.engine.assignment import Problem
from cs336_staff.grading.atomic import write_atomically
from cs336_staff.grading.blocks import MAX_DUMP, MAX_LINE, cut_block, fence_lines, quote_code
from cs336_staff.grading.grades import Grade, account_for, say_points
from cs336_staff.grading.grading import Grading
from cs336_staff.grading.losses import Kind, Loss, add_up, divide_losses
from cs336_staff.grading.remarks import printed, remarks, tabulate
from cs336_staff.grading.results_json import results

MOST = 3  # things that are told whole: what students take in
MOST_CODE, MOST_PRINTED = 8, 6  # lines of one
PLAIN = r"[^\w ,.:%-]"  # of names, what may mean something in Markdown


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
    """Write what the student reads: points, what costs them, the costliest first, and what the code printed."""
    lines = [f"# {quote_code(grading.submission)}: {say_points(grading, grades)}"]
    lines += _tabulate(grading, problems, grades)
    for remark in remarks(grading):
        lines += _tell_text(remark, MAX_DUMP)
    losses = divide_losses(grading, problems)
    large = [each for each in losses if not each.is_small]
    due = [each for each in large if each.points or not add_up(losses).points]  # of a bonus, if nothing else is lost
    found, unexplained = ([each for each in due if each.kind is kind] for kind in (Kind.FOUND, Kind.UNEXPLAINED))
    shown = [*found[:MOST], *unexplained[:1]]
    for loss in large:
        if loss.kind is Kind.NOT_OWN:
            lines += ["", *fence_lines(cut_block("\n".join(loss.finding.said)))]
        else:
            lines += [*[""] * (not lines[-1].startswith("- ")), _tell_in_a_line(loss, loss in shown)]
            lines += _show(loss) * (loss in shown)
    lines += _sum_up([each for each in losses if each.is_small])
    for text in printed(grading):
        lines += _tell_text(text, MOST_PRINTED)
    return "\n".join(lines) + "\n"


def _tabulate(grading: Grading, problems: Mapping[str, Problem], grades: Sequence[Grade]) -> Iterator[str]:
    """The problems that lose points; a sentence about the others; and what lateness costs."""
    full, unwritten, rows = [], [], []
    for row in tabulate(grading, problems):
        if row.is_full:
            full.append(row.title)
        elif row.problem.bonus and row.state == "not written":
            unwritten.append(row.problem.title)
        else:
            rows.append(f"| {row.title} | {row.points:.2f} / {row.problem.points:g} | {row.state} |")
    account = account_for(grades)
    if [what for what, _ in account] not in ([], ["Grade"]):
        account.insert(0, ("Points", f"{grading.points:.2f} / {grading.maximum:g}"))
        rows += [f"| **{re.sub(PLAIN, ' ', what)}** | **{points}** | |" for what, points in account]
    if rows:
        yield from ("", "| Problem | Points | Tests passed |", "|---|---:|---:|", *rows)
    told = {"Full points": full, "Bonus problems that are not written": unwritten}
    if full or unwritten:
        yield from ("", " ".join(f"{what}: {', '.join(titles)}." for what, titles in told.items() if titles))


def _tell_in_a_line(loss: Loss, is_shown: bool) -> str:
    """Say what a thing costs and where, what it is if that is not shown below, and how to see it."""
    what = loss.title if is_shown and loss.kind is Kind.FOUND else _describe(loss)
    see = f". To see it: {quote_code(loss.see)}" if loss.see and loss.kind is not Kind.NOT_WRITTEN else ""
    return f"- **{loss.cost}**: {what}{see}"


def _describe(loss: Loss) -> str:
    """Say where a thing is and what; if nothing was found, in which tests."""
    said = f"{loss.title}: {quote_code(' '.join(filter(None, (loss.place, loss.says))))}"
    if loss.kind is not Kind.UNEXPLAINED:
        return said
    hidden = ", ".join(map(quote_code, loss.hidden_says))
    return f"{said} in {loss.names}" + f"; hidden tests say {hidden}" * bool(hidden)


def _show(loss: Loss) -> list[str]:
    """Show what was found, or else what one of the tests says besides."""
    if loss.kind is Kind.FOUND:
        innermost = replace(loss.finding, code=loss.finding.code[-MOST_CODE:])
        return ["", *fence_lines(cut_block("\n".join(innermost.lines)))]
    return ["", *fence_lines(cut_block("\n".join(loss.example), MAX_DUMP))] if loss.example else []


def _sum_up(losses: Sequence[Loss]) -> list[str]:
    """Small things in one line, and what they cost together."""
    if len(losses) < 2:
        return ["", *(_tell_in_a_line(each, False) for each in losses)] if losses else []
    return ["", f"- **{add_up(losses).cost}** for small things: {'; '.join(map(_describe, losses))}"]


def _tell_text(text: str, most: int) -> list[str]:
    """A text in a line if it is short, and else as many lines of it as there are room for."""
    if "\n" in text or len(text) > MAX_LINE:
        return ["", *fence_lines(cut_block(text, most))]
    return ["", f"- {quote_code(text)}"]
