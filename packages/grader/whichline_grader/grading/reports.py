"""Write what people read of a class: for each submission `results.json` and `feedback.md`, and for staff the grades."""

import io
import json
import math
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from whichline.engine.assignment import Problem
from whichline.engine.result import Result
from whichline_grader.grading.final_grades import (
    EARLIER,
    UNSURE,
    Entry,
    Grade,
    account_for,
    grades,
    grades_of,
    group_by_submission,
    last_suite,
    match_extensions,
    say_points,
    write_canvas,
    write_grades,
)
from whichline_grader.grading.gradebook import DIGITS, FILE, Results, as_toml
from whichline_grader.grading.graded import Grading
from whichline_grader.grading.identity import name_for_return
from whichline_grader.grading.losses import (
    Kind,
    Loss,
    add_up,
    divide_losses,
    elide_numbers,
    is_unwritten,
    list_deductions,
    place_of,
)
from whichline_grader.grading.writing import write_atomically
from whichline_grader.sandbox.printable import printable

MOST = 20  # names or lines that staff are told of a list
MOST_SHOWN = 3  # things that are told whole: what students take in
MOST_CODE, MOST_PRINTED = 8, 6  # lines of one
MAX_MESSAGE = 4_000
# Lines of an exception, and of numbers and printed text; letters of a line of code: what students take in.
MAX_BLOCK, MAX_DUMP, MAX_LINE = 24, 12, 200
PLAIN = r"[^\w ,.:%-]"  # of names, what may mean something in Markdown


def write_course(console: Console, results: Results, only: str = "") -> list[Grade]:
    """Write all that a folder of results has of a class, print what staff should look into, and return the grades.

    That is grades.csv, canvas.csv if there is a roster, feedback.zip if Canvas or Moodle named the submissions, and the
    reports of each submission, or of one only.
    """
    out, course, roster = results.folder, results.course, results.course.listed
    found = grades(results.gradebook, course)
    entries = group_by_submission(found)
    write_grades(out / "grades.csv", found, list(results.problems))
    unreported = _write_all_reports(results, entries, only)
    _write_feedback_zip(out, [entry for entry in entries if entry.id not in unreported])
    students = {grade.student.key for grade in found}
    suite = last_suite(found)
    noticed = {
        "no report could be written, by no fault of the submission": [f"{id}: {why}" for id, why in unreported.items()],
        f"{UNSURE}; write which one does into {out / FILE}, below a line [counts]": [
            f"{grade.who}: {' or '.join(map(_counting, (grade, *grade.unsure)))}" for grade in found if grade.unsure
        ],
        "what staff decided is about nothing that was graded": list(results.gradebook.unused_decisions()),
        "Has an extension, and no grade": sorted(match_extensions(course, students).extensions.keys() - students),
        f"{EARLIER} than the others, so grade again": [entry.id for entry in entries if entry.grading.suite != suite],
    }
    if course.roster:
        noticed["In the roster, without a grade"] = roster.find_ungraded(students)
        noticed["Graded, not in the roster"] = write_canvas(out / "canvas.csv", roster, found, course.column)
    for what, names in noticed.items():
        if names:
            shown = cut_list(names, MOST, "compare grades.csv with the roster")
            console.print(Text(f"{what[0].upper()}{what[1:]}: {'; '.join(shown)}", "yellow"))
    return found


def _counting(grade: Grade) -> str:
    """The line of the decisions by which this attempt counts, and its grade."""
    return f"{as_toml(grade.student.key)} = {as_toml(grade.grading.content[:DIGITS])} ({grade.points:.2f} points)"


def cut_list(lines: Sequence[str], most: int, rest: str) -> list[str]:
    """The first lines, and how many more there are, with the place of the `rest`."""
    more = len(lines) - most
    return [*lines[:most], *([f"and {more} more: {rest}"] if more > 0 else [])]


def _write_all_reports(results: Results, entries: Iterable[Entry], only: str) -> dict[str, str]:
    """Write the reports of all submissions or one, of several attempts that which counts; return those that fail."""
    unreported: dict[str, str] = {}
    own = {entry.id: entry for entry in entries}
    counts = {grade.student.key: grade.id for entry in entries for grade in entry.grades}
    for name in results.gradebook.paths():
        if only not in ("", name) and (results.folder / name / "feedback.md").exists():
            continue
        if name in own:
            grading, theirs = results.gradebook.with_texts(own[name].grading), own[name].grades
        else:
            grading = results.gradebook.of(name)
            assert grading
            others = grades_of(grading, results.course)
            theirs = [replace(grade, instead=counts[grade.student.key]) for grade in others]
        if why := write_reports(results.folder / name, grading, results.problems, theirs):
            unreported[name] = why
    return unreported


def _write_feedback_zip(out: Path, entries: Iterable[Entry]) -> None:
    """Write the feedback of each attempt that counts, under the names by which Canvas or Moodle know whose it is."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in entries:
            if name := name_for_return(Path(entry.grading.path), "feedback.md"):
                archive.write(out / entry.id / "feedback.md", name)
        empty = not archive.namelist()
    if not empty:
        write_atomically(out / "feedback.zip", packed.getvalue())


def write_reports(folder: Path, grading: Grading, problems: Mapping[str, Problem], grades: Sequence[Grade] = ()) -> str:
    """Write `results.json` and `feedback.md` of one submission; an error of ours in it is given back in words."""
    try:
        results = json.dumps(for_gradescope(grading, problems, grades), indent=1)
        text = feedback(grading, problems, grades)
    except Exception as error:  # it concerns nobody else
        return f"{type(error).__name__}: {error}"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "results.json", results)
    write_atomically(folder / "feedback.md", text)
    return ""


class Row(NamedTuple):
    """The points of a problem, and how many of its tests pass."""

    problem: Problem
    title: str
    points: float
    state: str

    @property
    def is_full(self) -> bool:
        return self.points > self.problem.points - 0.005


def tabulate(grading: Grading, problems: Mapping[str, Problem]) -> Iterator[Row]:
    """Give the points of each problem: what its tests earned, less what it pays, and what staff adjusted."""
    for problem in problems.values():
        results = grading.results_of(problem.id)
        passed = f"{sum(result.passed for result in results)} / {len(results)}"
        state = "not written" if is_unwritten(results) else passed
        yield Row(problem, problem.title + " (bonus)" * problem.bonus, grading.points_of(problem.id), state)


def remarks(grading: Grading) -> Iterator[str]:
    """Say what concerns the submission as a whole."""
    notes = grading.notes
    if notes.refused:
        yield f"The submission was not run: {notes.refused}"
    yield from grading.decisions
    if notes.missing:
        yield (
            f"Your code imports {', '.join(notes.missing)}: your submission has no such file, and the grader "
            "has no such package. That costs nothing as long as no graded function needs it."
        )
    yield from notes.taken_in


def printed(grading: Grading) -> Iterator[str]:
    """Give what the submission has written to its streams, each under a line that says so."""
    for stream, text in (("stdout", grading.notes.stdout), ("stderr", grading.notes.stderr)):
        if text:
            yield f"Your code wrote to {stream} during the public tests:\n{text}"


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
    shown = [*found[:MOST_SHOWN], *unexplained[:1]]
    for loss in large:
        if loss.kind is Kind.NOT_OWN:
            lines += ["", *fence(loss.finding.said)]
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
        return ["", *fence(innermost.lines)]
    return ["", *fence(loss.example, MAX_DUMP)] if loss.example else []


def _sum_up(losses: Sequence[Loss]) -> list[str]:
    """Small things in one line, and what they cost together."""
    if len(losses) < 2:
        return ["", *(_tell_in_a_line(each, False) for each in losses)] if losses else []
    return ["", f"- **{add_up(losses).cost}** for small things: {'; '.join(map(_describe, losses))}"]


def _tell_text(text: str, most: int) -> list[str]:
    """A text in a line if it is short, and else as many lines of it as there are room for."""
    if "\n" in text or len(text) > MAX_LINE:
        return ["", *fence([text], most)]
    return ["", f"- {quote_code(text)}"]


# Texts of a submission: cut where they are long, in Markdown as code that nothing in them can end.


def make_printable(message: str) -> str:
    """The message as it can be printed anywhere, cut off where it is too long to be read."""
    text = printable(message[: MAX_MESSAGE + 1])
    return text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + "\n(cut off)"


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
    """Of the runs of backticks."""
    return max(map(len, re.findall(r"`+", text)), default=0)


# The report in Gradescope's format.


def for_gradescope(grading: Grading, problems: Mapping[str, Problem], grades: Sequence[Grade] = ()) -> dict[str, Any]:
    """The report as Gradescope reads it: a box for each problem, and a hidden one once grades are published.

    Points have two digits; all digits are in `extra_data`.
    """
    boxes = [
        box for number, problem in enumerate(problems.values(), 1) for box in _fill_boxes(number, problem, grading)
    ]
    explained = ("\n".join((f"{each.problem}:", *each.lines)) for each in grading.notes.explanations)
    deductions = ("\n".join(lines) for _, *lines in list_deductions(grading))
    account = "\n".join(f"{what}: {points}" for what, points in account_for(grades))
    said = (account, *deductions, *remarks(grading), *explained, *printed(grading))
    return {
        "score": round(min((each.points for each in grades), default=grading.points), 2),
        "output": "\n\n".join(filter(None, said)),
        "output_format": "text",
        "tests": boxes,
        "extra_data": {
            "submission": grading.submission,
            "points": grading.points,
            "maximum": grading.maximum,
            "grades": [
                {
                    "student": each.student.key,
                    "days_late": each.days_late,
                    "penalty": each.penalty,
                    "grade": each.points,
                }
                for each in grades
            ],
            "content": grading.content,
            "suite": grading.suite,
            "sandbox": grading.layer,
            "started": grading.started.isoformat(),
        },
    }


def _fill_boxes(number: int, problem: Problem, grading: Grading) -> Iterator[dict[str, Any]]:
    """The boxes of the public and of the hidden tests of a problem; what it pays is taken from the first ones first."""
    paid = grading.charges.get(problem.id, {})
    owed = math.fsum(paid.values())
    for stage, hidden in enumerate((False, True), start=1):
        if results := [each for each in grading.results_of(problem.id) if each.hidden is hidden]:
            pays = min(owed, math.fsum(result.points for result in results))
            owed -= pays
            why = [f"{pays:.2f} points lost for {' and '.join(paid)}: not your own work"] if pays else []
            yield _fill_box(f"{number}.{stage}", problem, results, pays, why)


def _fill_box(
    number: str, problem: Problem, results: Sequence[Result], pays: float, why: Sequence[str]
) -> dict[str, Any]:
    hidden, passed, lost = results[0].hidden, sum(result.passed for result in results), _lose(results)
    earned = math.fsum(result.points for result in results) - pays
    text = [f"{passed} of {len(results)} tests pass.", *why] if lost or why else []
    text += [f"{points:.2f} points lost in {function}" for function, points in lost.items()]
    for first, *others in _sort_kinds(results):
        text += ["", f"{first.test}:", make_printable(first.text)]
        text += [f"The same, but for its numbers, in {', '.join(other.test for other in others)}."] if others else []
    return {
        "name": f"{problem.title}: {'hidden' if hidden else 'public'} tests",
        "number": number,
        "score": round(earned, 2),
        "max_score": round(math.fsum(result.maximum for result in results), 2),
        "status": "failed" if lost or why else "passed",
        "output": make_printable("\n".join(text).strip()),
        "output_format": "text",
        "visibility": "after_published" if hidden else "visible",
        "tags": [problem.id],
        "extra_data": {
            "hidden": hidden,
            "bonus": problem.bonus,
            "points": earned,
            "lost": lost,
            "outcomes": {result.test: result.outcome for result in results},
        },
    }


def _sort_kinds(results: Iterable[Result]) -> Iterable[list[Result]]:
    """Those that did not pass, together where they fail alike but for their numbers."""
    kinds: dict[tuple[object, ...], list[Result]] = {}
    for each in results:
        if not each.passed:
            kinds.setdefault((each.check, elide_numbers(each.headline), place_of(each.details)), []).append(each)
    return kinds.values()


def _lose(results: Iterable[Result]) -> dict[str, float]:
    """The points that are lost in each test function that loses any, most first."""
    lost: dict[str, float] = {}
    for each in results:
        if not each.passed:
            lost[each.function] = lost.get(each.function, 0.0) + each.maximum
    return dict(sorted(lost.items(), key=lambda each: -each[1]))
