"""`staff report` fills in templates, under a policy by which a page loads and runs nothing."""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple
from urllib.parse import quote

import click
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from whichline.engine.assignment import Problem
from whichline_grader.grading.class_deductions import ClassDeduction, count_deductions, count_students, teach_next
from whichline_grader.grading.course import RESULTS, results_folder
from whichline_grader.grading.deductions import add_up
from whichline_grader.grading.final_grades import Entry, grades, group_by_submission
from whichline_grader.grading.gradebook import Results, open_results
from whichline_grader.grading.graded import Matrix, redact
from whichline_grader.grading.report import Report, make_printable
from whichline_grader.grading.reports import read_reports
from whichline_grader.grading.writing import write_atomically
from whichline_grader.sandbox.printable import printable

TEMPLATES = Path(__file__).parent / "templates"
INDEX, STUDENTS = "index.html", "students"
NOBODY = "a student of the roster"
LONGEST = 300  # of a text that is shown as a line
MOST = 10  # rows of what costs a class most


@click.command()
@click.argument("results", type=RESULTS, default=results_folder)
@click.option("--anonymous", is_flag=True, help="Name nobody: random numbers, and nothing that a student wrote.")
def report(results: Path, anonymous: bool) -> None:
    """Write the gradebook of RESULTS as pages: index.html for staff, and students/NAME.html for each student.

    The pages stand alone: they load nothing, and can be opened from a disk, mailed or printed.
    """
    with open_results(results) as opened:
        count = write_site(opened, anonymous)
    pages = "1 submission: its page is" if count == 1 else f"{count} submissions: their pages are"
    click.echo(f"{results / INDEX} reports on {pages} in {results / STUDENTS}")


def write_site(results: Results, anonymous: bool = False) -> int:
    """Write `index.html`, and `students/ID.html` for each submission, and return how many; older ones are removed."""
    found = grades(results.gradebook, results.course)
    known = group_by_submission(found)
    ungraded = results.course.listed.find_ungraded({grade.student.key for grade in found})
    numbered = draw_numbers(entry.id for entry in known) if anonymous else {}
    known.sort(key=lambda entry: numbered.get(entry.id, ""))  # the times of the files say nothing either
    pages, folder = load_templates(), results.folder / STUDENTS
    folder.mkdir(exist_ok=True)
    for page in folder.glob("*.html"):
        page.unlink()
    if anonymous:
        ungraded = [NOBODY] * len(ungraded)

    def write_pages() -> Iterator[tuple[Entry, Report]]:
        for number, (entry, report) in enumerate(read_reports(results, known)):
            if anonymous:
                entry = known[number] = make_anonymous(entry, numbered[entry.id])
                report = replace(report, grading=redact(report.grading, entry.id), grades=entry.grades)
            write_atomically(folder / f"{entry.id}.html", fill_student_page(pages, report))
            if not report.grading.notes.refused:
                yield entry, report

    deductions = count_deductions(write_pages())
    write_atomically(results.folder / INDEX, fill_class_page(pages, known, deductions, results.problems, ungraded))
    return len(known)


def draw_numbers(ids: Iterable[str]) -> dict[str, str]:
    drawn = [*ids]
    random.SystemRandom().shuffle(drawn)
    digits = len(str(len(drawn)))
    return {id: f"submission-{number:0{digits}}" for number, id in enumerate(drawn, start=1)}


def make_anonymous(entry: Entry, number: str) -> Entry:
    """The same submission under a number, by nobody."""
    grading = redact(entry.grading, number)
    (nobody,) = grading.handed_in.students
    grades = [replace(each, student=nobody, handed=grading.handed_in, grading=grading) for each in entry.grades]
    return Entry(grading, tuple(grades))


def load_templates() -> Environment:
    """Templates in which every text is escaped, and is made fit to be printed before."""
    pages = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: printable(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.globals["style"] = Markup((TEMPLATES / "style.css").read_text(encoding="utf-8"))  # noqa: S704 (our own)
    pages.filters |= {
        "heat": lambda lost: f"--lost:{lost**0.6:.2f}",  # small losses are to be seen, too
        "line": _flatten,
        "page": lambda id: f"{STUDENTS}/{quote(id)}.html",
        "shown": make_printable,
    }
    return pages


def fill_class_page(
    pages: Environment,
    entries: Sequence[Entry],
    deductions: Sequence[ClassDeduction],
    problems: Mapping[str, Problem],
    ungraded: Sequence[str],
) -> str:
    """The page for staff; `ungraded` are the students of the roster who have no grade."""
    points = [grade.points for entry in entries for grade in entry.grades]
    return pages.get_template("class.html").render(
        next=teach_next(deductions, [entry for entry in entries if not entry.grading.notes.refused]),
        entries=entries,
        problems=problems,
        penalties=any(grade.penalty for entry in entries for grade in entry.grades),
        grades=points,
        median=median(points),
        mean=fmean(points),
        deductions=deductions[:MOST],
        others=deductions[MOST:],
        rest=add_up(each.deduction for each in deductions[MOST:]),
        total=add_up(each.deduction for each in deductions),
        count_students=count_students,
        ungraded=ungraded,
    )


def fill_student_page(pages: Environment, report: Report) -> str:
    """The page for the student: nothing on it is for staff alone, or comes from a hidden input."""
    figure = report.grading.notes.figure
    said = (*report.rule_breaks, *report.remarks, *report.printed)
    return pages.get_template("student.html").render(
        report=report,
        remarks=[make_printable(each).partition("\n")[::2] for each in said],
        figure=figure,
        yours=draw_cells(figure.yours, figure.allowed) if figure else [],
        right=draw_cells(figure.right, figure.allowed) if figure else [],
    )


def _flatten(text: str) -> str:
    """A text in one line, cut off where nobody reads on."""
    line = " ".join(text[: 4 * LONGEST].split())
    return line if len(line) <= LONGEST else line[:LONGEST] + "…"


class Cell(NamedTuple):
    """One number: None is NaN or infinite; `hidden` where only 0 is right."""

    weight: float | None
    hidden: bool

    @property
    def text(self) -> str:
        if self.weight is None:
            return "NaN"
        if 0 <= self.weight <= 1:
            return f"{self.weight:.2f}"
        short = f"{self.weight:.2g}" if 0.01 <= abs(self.weight) < 100 else f"{self.weight:.0e}"
        return short.replace("e+0", "e").replace("e+", "e")

    @property
    def shade(self) -> float:
        return min(1.0, max(0.0, self.weight or 0.0))


def draw_cells(weights: Matrix, allowed: Iterable[Iterable[bool]]) -> list[list[Cell]]:
    """Nothing is drawn of a student's if there are no numbers."""
    rows = zip(weights, allowed, strict=False)
    return [[Cell(weight, not seen) for weight, seen in zip(row, mask, strict=True)] for row, mask in rows]
