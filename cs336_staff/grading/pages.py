"""`cs336 staff report` fills in templates, under a policy by which a page loads nothing and runs our script alone."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import click
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from cs336_kit.engine.assignment import Problem
from cs336_staff.authoring.room import Figure, load_rooms
from cs336_staff.grading import class_page
from cs336_staff.grading.anonymous import draw_numbers, make_anonymous
from cs336_staff.grading.atomic import write_atomically
from cs336_staff.grading.blocks import make_printable
from cs336_staff.grading.class_page import Entry
from cs336_staff.grading.class_summary import sum_up
from cs336_staff.grading.course import Course, results_folder
from cs336_staff.grading.decisions import RESULTS, open_results
from cs336_staff.grading.feedback import feedback
from cs336_staff.grading.finding import Finding
from cs336_staff.grading.gradebook import Gradebook
from cs336_staff.grading.grades import account_for, grades, say_points
from cs336_staff.grading.grading import Matrix
from cs336_staff.grading.sections import Section, printed, remarks, sections
from cs336_staff.sandbox.printable import printable

TEMPLATES = Path(__file__).parent / "templates"
INDEX, STUDENTS = "index.html", "students"
LONGEST = 300  # of a text that is shown as a line
MOST = 10  # of the slowest, and of those that take the most memory


@click.command()
@click.argument("results", type=RESULTS, default=results_folder)
@click.option("--anonymous", is_flag=True, help="Name nobody: random numbers, and nothing that a student wrote.")
def report(results: Path, anonymous: bool) -> None:
    """Write the gradebook of RESULTS as pages: index.html for staff, and students/NAME.html for each student.

    The pages stand alone: they load nothing, and can be opened from a disk, mailed or printed.
    """
    with open_results(results) as (gradebook, course, problems):
        count = write_site(results, gradebook, problems, course, anonymous)
    pages = "1 submission: its page is" if count == 1 else f"{count} submissions: their pages are"
    click.echo(f"{results / INDEX} reports on {pages} in {results / STUDENTS}")


def write_site(
    out: Path, gradebook: Gradebook, problems: Mapping[str, Problem], course: Course, anonymous: bool = False
) -> int:
    """Write `index.html`, and `students/ID.html` and `students/ID.md` for each submission; older ones are removed.

    Args:
        out: the folder of results.
        gradebook: its gradebook.
        problems: by id, with public and hidden tests.
        course: says whose attempt counts.
        anonymous: whether the pages name nobody.

    Returns:
        How many submissions there are.

    Raises:
        OSError: a page cannot be written.
    """
    known = class_page.group_by_submission(grades(gradebook, course))
    numbered = draw_numbers(entry.id for entry in known) if anonymous else {entry.id: entry.id for entry in known}
    known.sort(key=lambda entry: numbered[entry.id])  # the times of the files say nothing either
    pages, folder = load_templates(), out / STUDENTS
    folder.mkdir(exist_ok=True)
    for page in folder.glob("*.html"):
        page.with_suffix(".md").unlink(missing_ok=True)
        page.unlink()
    for entry in known:
        whole = replace(entry, grading=gradebook.with_texts(entry.grading))
        if anonymous:
            whole = make_anonymous(whole, numbered[entry.id])
        told = list(sections(whole.grading, problems))
        write_atomically(folder / f"{whole.id}.html", fill_student_page(pages, whole, told))
        write_atomically(folder / f"{whole.id}.md", feedback(whole.grading, problems, whole.grades, told))
    entries = [make_anonymous(entry, numbered[entry.id]) for entry in known] if anonymous else known
    write_atomically(out / INDEX, fill_class_page(pages, entries, problems))
    return len(entries)


def load_templates() -> Environment:
    """Templates in which every text is escaped, and is made fit to be printed before."""
    pages = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: printable(value) if type(value) is str and not value.isprintable() else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = (TEMPLATES / "table.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    pages.globals |= {
        "script": Markup(script),  # noqa: S704 (our own)
        "script_hash": f"sha256-{digest}",
        "style": Markup((TEMPLATES / "style.css").read_text(encoding="utf-8")),  # noqa: S704 (our own)
    }
    pages.filters |= {
        "heat": lambda lost: f"--lost:{lost**0.6:.2f}",  # small losses are to be seen, too
        "line": _line,
        "page": lambda id: f"{STUDENTS}/{quote(id)}.html",
        "parts": Finding.of,
        "percent": _percent,
        "shown": make_printable,
    }
    return pages


def fill_class_page(pages: Environment, entries: Sequence[Entry], problems: Mapping[str, Problem]) -> str:
    """The page for staff."""
    ran = [entry for entry in entries if not entry.refused]
    found = class_page.count_findings(ran, problems)
    by_memory = sorted(ran, key=lambda entry: -entry.grading.notes.peak_memory)
    return pages.get_template("class.html").render(
        opening=sum_up(entries, problems),
        entries=entries,
        ran=ran,
        problems=problems,
        wrote={problem.id: sum(entry.wrote(problem) for entry in ran) for problem in problems.values()},
        penalties=any(grade.penalty for entry in entries for grade in entry.grades),
        able={problem.id: sum(entry.can(problem) for entry in ran) for problem in problems.values()},
        share=class_page.ABLE,
        grades=class_page.distribute_grades(entries),
        passing={problem.id: class_page.measure_passing(ran, problem) for problem in problems.values()},
        found=[each for each in found if each.finding.runs],
        crashing=[each for each in found if not each.finding.runs],
        slowest=sorted(ran, key=lambda entry: -entry.grading.seconds)[:MOST],
        hungriest=[entry for entry in by_memory if entry.grading.notes.peak_memory][:MOST],
    )


def fill_student_page(pages: Environment, entry: Entry, told: Sequence[Section]) -> str:
    """The page for the student: nothing on it is for staff alone, or comes from a hidden input."""
    grading = entry.grading
    failed = {result.problem for result in grading.results if not result.passed}
    figures = [room.figure for id, room in load_rooms().items() if room.figure and id in failed]
    figure = figures[0] if figures and not grading.notes.refused else None
    return pages.get_template("student.html").render(
        grading=grading,
        points=say_points(grading, entry.grades),
        account=account_for(entry.grades),
        remarks=[make_printable(each).partition("\n")[::2] for each in (*remarks(grading), *printed(grading))],
        sections=told,
        figure=figure,
        yours=draw_cells(grading.notes.weights, figure) if figure else [],
        right=draw_cells(figure.right(), figure) if figure else [],
        comparison=figure.compare(grading.notes.weights) if figure else "",
    )


def _line(text: str) -> str:
    """A text in one line, cut off where nobody reads on."""
    line = " ".join(text[: 4 * LONGEST].split())
    return line if len(line) <= LONGEST else line[:LONGEST] + "…"


def _percent(share: float) -> int:
    """Whole percent, of which 0 and 100 mean none and all."""
    return round(100 * share) if share in (0, 1) else min(99, max(1, round(100 * share)))


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


def draw_cells(weights: Matrix, figure: Figure) -> list[list[Cell]]:
    """Nothing is drawn of a student's if there are no numbers."""
    return [
        [Cell(weight, not seen) for weight, seen in zip(row, mask, strict=True)]
        for row, mask in zip(weights, figure.allowed(), strict=False)
    ]
