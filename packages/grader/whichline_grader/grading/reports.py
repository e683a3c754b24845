"""Write what people read of a class: for each submission `results.json` and `feedback.md`, and for staff the grades."""

import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
from rich.console import Console
from rich.text import Text

from whichline_grader.grading import final_grades
from whichline_grader.grading.class_deductions import ClassDeduction, count_deductions
from whichline_grader.grading.decisions import DIGITS, FILE, as_toml
from whichline_grader.grading.feedback import feedback
from whichline_grader.grading.final_grades import Entry, Grade, grades
from whichline_grader.grading.gradebook import Results
from whichline_grader.grading.identity import name_for_return
from whichline_grader.grading.report import Report
from whichline_grader.grading.results_json import make_results_json
from whichline_grader.grading.writing import write_atomically

MOST = 20  # names or lines that staff are told of a list


def write_course(console: Console, results: Results, only: str = "") -> tuple[list[Grade], list[ClassDeduction]]:
    """Write all that a folder of results has of a class, and print what staff should look into.

    That is grades.csv, canvas.csv if there is a roster, feedback.zip if Canvas or Moodle named the submissions, and the
    reports of each submission, with findings.csv, or of one only. It returns the grades, and what costs the class
    points in the reports that were written.
    """
    out, course = results.folder, results.course
    found = grades(results.gradebook, course)
    entries = final_grades.group_by_submission(found)
    final_grades.write_grades(out / "grades.csv", found, list(results.problems))
    unreported: dict[str, str] = {}
    deductions = count_deductions(_write_all_reports(results, entries, only, unreported))
    if not only:
        write_findings(out, deductions)
    _write_feedback_zip(out, [entry for entry in entries if entry.id not in unreported])
    failed = [f"{id}: {why}" for id, why in unreported.items()]
    noticed = {"no report could be written, and not because of the submission": failed}
    noticed |= {} if only else _notice(results, found, entries)
    if course.roster:
        strangers = final_grades.write_canvas(out / "canvas.csv", course.listed, found, course.column)
        noticed |= {} if only else {"Graded, not in the roster": strangers}
    for what, names in noticed.items():
        if names:
            shown = cut_list(names, MOST, "compare grades.csv with the roster")
            console.print(Text(f"{what[0].upper()}{what[1:]}: {'; '.join(shown)}", "yellow"))
    return found, deductions


def _notice(results: Results, found: Sequence[Grade], entries: Sequence[Entry]) -> dict[str, list[str]]:
    """List what staff should look into, of the class."""
    out, course, students = results.folder, results.course, {grade.student.key for grade in found}
    suite = final_grades.find_last_suite(found)
    unsure = [f"{each.who}: {' or '.join(map(_name_attempt, (each, *each.unsure)))}" for each in found if each.unsure]
    strangers = final_grades.match_extensions(course, students).extensions.keys() - students
    earlier = [entry.id for entry in entries if entry.grading.suite != suite]
    return {
        f"{final_grades.UNSURE}; write which one does into {out / FILE}, below a line [counts]": unsure,
        "what staff decided is about nothing that was graded": list(results.gradebook.list_unused_decisions()),
        "Has an extension, and no grade": sorted(strangers),
        f"{final_grades.EARLIER} than the others, so grade again": earlier,
        "In the roster, without a grade": course.listed.find_ungraded(students),
    }


def _name_attempt(grade: Grade) -> str:
    """The line of the decisions by which this attempt counts, and its grade."""
    return f"{as_toml(grade.student.key)} = {as_toml(grade.grading.content[:DIGITS])} ({grade.points:.2f} points)"


def cut_list(lines: Sequence[str], most: int, rest: str) -> list[str]:
    """The first lines, and how many more there are, with the place of the `rest`."""
    more = len(lines) - most
    return [*lines[:most], *([f"and {more} more: {rest}"] if more > 0 else [])]


def read_reports(results: Results, entries: Iterable[Entry]) -> Iterator[tuple[Entry, Report]]:
    """The reports of the submissions that count, one after the other."""
    for entry in entries:
        yield entry, Report(results.gradebook.with_texts(entry.grading), results.problems, entry.grades)


def _write_all_reports(
    results: Results, entries: Sequence[Entry], only: str, unreported: dict[str, str]
) -> Iterator[tuple[Entry, Report]]:
    """Write the reports of all submissions or one, of several attempts that which counts; note those that fail.

    Gives those of the submissions that count and were run.
    """
    own = {entry.id: entry for entry in entries}
    counts = {grade.student.key: grade.id for entry in entries for grade in entry.grades}
    for name in results.gradebook.paths():
        if only not in ("", name) and (results.folder / name / "feedback.md").exists():
            continue
        if name in own:
            ((entry, report),) = read_reports(results, [own[name]])
        else:
            grading = results.gradebook.of(name)
            assert grading
            others = final_grades.compute_grades_of(grading, results.course)
            theirs = [replace(grade, instead=counts[grade.student.key]) for grade in others]
            entry, report = None, Report(grading, results.problems, theirs)
        if why := write_reports(results.folder / name, report):
            unreported[name] = why
        elif entry and not report.grading.notes.refused:
            yield entry, report


def write_findings(out: Path, found: Iterable[ClassDeduction]) -> None:
    """Write findings.csv: what each thing costs, how many submissions have it, and what it says."""
    rows: list[tuple[object, ...]] = [("points", "bonus", "submissions", "problem", "finding", "says")]
    for each in found:
        costs = f"{each.deduction.points:.4g}", f"{each.deduction.bonus:.4g}", len(each.entries)
        rows.append((*costs, each.problem.id, each.id, each.says))
    final_grades.write_table(out / "findings.csv", rows)


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


def write_reports(folder: Path, report: Report) -> str:
    """Write `results.json` and `feedback.md` of one submission; an error of ours in it is given back in words."""
    try:
        results = msgspec.json.format(json.dumps(make_results_json(report)), indent=1)  # json's own indents slowly
        text = feedback(report)
    except Exception as error:  # it concerns nobody else
        return f"{type(error).__name__}: {error}"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "results.json", results)
    write_atomically(folder / "feedback.md", text)
    return ""
