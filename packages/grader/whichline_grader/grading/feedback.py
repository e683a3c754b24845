"""`feedback.md`: what the student reads."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from whichline_grader.grading.deductions import Deduction, Kind, add_up
from whichline_grader.grading.report import Report, make_printable
from whichline_grader.sandbox.printable import printable

MOST_SHOWN = 3  # things that are told whole: what students take in
MOST_CODE, MOST_PRINTED = 8, 6  # lines of one
# Lines of an exception, and of numbers and printed text; letters of a line of code: what students take in.
MAX_BLOCK, MAX_DUMP, MAX_LINE = 24, 12, 200
PLAIN = r"[^\w ,.:%-]"  # of names, what may mean something in Markdown


def feedback(report: Report) -> str:
    """Write what the student reads: points, what costs them, the costliest first, and what the code printed."""
    lines = [f"# {quote_code(report.grading.submission)}: {report.points}"]
    lines += _tabulate(report)
    for remark in report.remarks:
        lines += _describe_text(remark, MAX_DUMP)
    large = [each for each in report.deductions if not each.is_small]
    lost = add_up(report.deductions).points
    due = [each for each in large if each.points or not lost]  # of a bonus, if nothing else is lost
    found, unexplained = ([each for each in due if each.kind is kind] for kind in (Kind.FOUND, Kind.UNEXPLAINED))
    shown = [*found[:MOST_SHOWN], *unexplained[:1]]
    for deduction in large:
        if deduction.kind is Kind.NOT_OWN:
            lines += ["", *fence(deduction.finding.said)]
        else:
            lines += [*[""] * (not lines[-1].startswith("- ")), _describe_in_a_line(deduction, deduction in shown)]
            lines += _show(deduction) * (deduction in shown)
    lines += _sum_up([each for each in report.deductions if each.is_small])
    for text in report.printed:
        lines += _describe_text(text, MOST_PRINTED)
    return "\n".join(lines) + "\n"


def _tabulate(report: Report) -> Iterator[str]:
    """The problems that lose points; a sentence about the others; and what lateness costs."""
    full, unwritten, rows = [], [], []
    for row in report.rows:
        if row.is_full:
            full.append(row.title)
        elif row.problem.bonus and row.state == "not written":
            unwritten.append(row.problem.title)
        else:
            rows.append(f"| {row.title} | {row.points:.2f} / {row.problem.points:g} | {row.state} |")
    account = report.account
    if [what for what, _ in account] not in ([], ["Grade"]):
        account.insert(0, ("Points", f"{report.grading.points:.2f} / {report.grading.maximum:g}"))
        rows += [f"| **{re.sub(PLAIN, ' ', what)}** | **{points}** | |" for what, points in account]
    if rows:
        yield from ("", "| Problem | Points | Tests passed |", "|---|---:|---:|", *rows)
    summaries = {"Full points": full, "Bonus problems that are not written": unwritten}
    if full or unwritten:
        yield from ("", " ".join(f"{what}: {', '.join(titles)}." for what, titles in summaries.items() if titles))


def _describe_in_a_line(deduction: Deduction, is_shown: bool) -> str:
    """Say what a thing costs and where, what it is if that is not shown below, and how to see it."""
    what = deduction.title if is_shown and deduction.kind is Kind.FOUND else _describe(deduction)
    is_seen = deduction.see and deduction.kind is not Kind.NOT_WRITTEN
    see = f". To see it: {quote_code(deduction.see)}" if is_seen else ""
    return f"- **{deduction.cost}**: {what}{see}"


def _describe(deduction: Deduction) -> str:
    """Say where a thing is and what; if nothing was found, in which tests."""
    said = f"{deduction.title}: {quote_code(' '.join(filter(None, (deduction.place, deduction.says))))}"
    if deduction.kind is not Kind.UNEXPLAINED:
        return said
    hidden = ", ".join(map(quote_code, deduction.hidden_says))
    return f"{said} in {deduction.names}" + f"; hidden tests say {hidden}" * bool(hidden)


def _show(deduction: Deduction) -> list[str]:
    """Show what was found, or else what one of the tests says besides."""
    if deduction.kind is Kind.FOUND:
        return ["", *fence(replace(deduction.finding, code=deduction.finding.code[-MOST_CODE:]).lines)]
    return ["", *fence(deduction.example, MAX_DUMP)] if deduction.example else []


def _sum_up(deductions: Sequence[Deduction]) -> list[str]:
    """Small things in one line, and what they cost together."""
    if len(deductions) < 2:
        return ["", *(_describe_in_a_line(each, False) for each in deductions)] if deductions else []
    return ["", f"- **{add_up(deductions).cost}** for small things: {'; '.join(map(_describe, deductions))}"]


def _describe_text(text: str, most: int) -> list[str]:
    """A text in a line if it is short, and else as many lines of it as there are room for."""
    return ["", *fence([text], most)] if "\n" in text or len(text) > MAX_LINE else ["", f"- {quote_code(text)}"]


# Texts of a submission: cut where they are long, in Markdown as code that nothing in them can end.


def fence(text: Iterable[str], most: int = MAX_BLOCK) -> list[str]:
    """A code block of as many lines as students take in, which nothing in them can end."""
    lines = make_printable("\n".join(text)).splitlines()
    if len(lines) > most:
        lines = [*lines[:most], f"({len(lines) - most} more lines)"]
    end = "`" * max(3, 1 + _longest_fence("\n".join(lines)))
    return [f"{end}text", *lines, end]


def quote_code(text: str) -> str:
    """A line of code that nothing in `text` can end."""
    fence = "`" * (1 + _longest_fence(text))
    line = " ".join(printable(text).split())
    if len(line) > MAX_LINE:
        whole = line[:MAX_LINE].rpartition(" ")[0]
        line = f"{whole if len(whole) > MAX_LINE // 2 else line[:MAX_LINE]} …"  # one word may be longer than a line
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def _longest_fence(text: str) -> int:
    return max(map(len, re.findall(r"`+", text)), default=0)
