"""Write the pages: templates filled in, under a policy by which a page loads nothing and runs our script alone."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from cs336_kit.engine.assignment import Problem
from cs336_kit.engine.result import Check
from cs336_staff.grading.course import Course
from cs336_staff.grading.exports import grades
from cs336_staff.grading.gradebook import Gradebook, GradebookError, Grading
from cs336_staff.grading.pages import numbers
from cs336_staff.grading.pages.anonymous import anonymous_entry, draw_numbers, without_words
from cs336_staff.grading.pages.entry import Entry, Told, entries_of
from cs336_staff.grading.pages.opening import opening
from cs336_staff.grading.pages.weights_figure import WeightsFigure
from cs336_staff.grading.report import MAX_BLOCK, Kind, feedback, names_of, remarks, sections, shown, write_whole
from cs336_staff.grading.weights import PROBLEM
from cs336_staff.sandbox.printable import printable

TEMPLATES = Path(__file__).parent / "templates"
INDEX, STUDENTS = "index.html", "students"
LONGEST = 300  # of a text that is shown as a line


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
        GradebookError: the gradebook has no grading.
        OSError: a page cannot be written.
    """
    known = entries_of(grades(gradebook, course))
    if not known:
        raise GradebookError(f"the gradebook in {out} is empty; grade a submission into it first")
    numbered = draw_numbers(entry.id for entry in known) if anonymous else {entry.id: entry.id for entry in known}
    known.sort(key=lambda entry: numbered[entry.id])  # the times of the files say nothing either
    pages, folder = environment(), out / STUDENTS
    folder.mkdir(exist_ok=True)
    for page in folder.glob("*.html"):
        page.with_suffix(".md").unlink(missing_ok=True)
        page.unlink()
    for entry in known:
        grading = gradebook.with_texts(entry.grading)
        if anonymous:
            grading = without_words(grading, numbered[entry.id])
        write_whole(folder / f"{grading.submission}.html", student_page(pages, grading, problems))
        write_whole(folder / f"{grading.submission}.md", feedback(grading, problems))
    entries = [anonymous_entry(entry, numbered[entry.id]) for entry in known] if anonymous else known
    write_whole(out / INDEX, class_page(pages, entries, problems))
    return len(entries)


def environment() -> Environment:
    """Templates in which every text is escaped, and is made fit to be printed before."""
    pages = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: printable(value) if type(value) is str else value,
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
        "percent": _percent,
        "shown": shown,
    }
    return pages


def class_page(pages: Environment, entries: Sequence[Entry], problems: Mapping[str, Problem]) -> str:
    """The page for staff."""
    ran = [entry for entry in entries if not entry.refused]
    found = numbers.findings(ran)
    return pages.get_template("class.html").render(
        opening=opening(entries, list(problems.values())),
        entries=entries,
        ran=ran,
        problems=problems,
        wrote={problem.id: sum(entry.wrote(problem) for entry in ran) for problem in problems.values()},
        penalties=any(grade.penalty for entry in entries for grade in entry.grades),
        solved={problem.id: sum(entry.solves(problem) for entry in ran) for problem in problems.values()},
        grades=numbers.distribution(entries),
        passing={problem.id: numbers.passing(ran, problem) for problem in problems.values()},
        found=[each for each in found if each.told.runs],
        crashing=[each for each in found if not each.told.runs],
        together=numbers.together(found, len(ran)),
        slowest=numbers.slowest(ran),
        hungriest=numbers.hungriest(ran),
    )


def student_page(pages: Environment, grading: Grading, problems: Mapping[str, Problem]) -> str:
    """The page for the student: nothing on it is for staff alone, or comes from a hidden input."""
    failed = any(result.problem == PROBLEM and not result.passed for result in grading.results)
    told = list(sections(grading, problems))
    return pages.get_template("student.html").render(
        grading=grading,
        remarks=[shown(remark).partition("\n")[::2] for remark in remarks(grading)],
        sections=told,
        explained={section.problem.id: [Told.of(each) for each in section.explanations] for section in told},
        failures={section.problem.id: [Failure.of(kind) for kind in section.kinds] for section in told},
        weights=WeightsFigure.of(grading.notes.weights) if failed and not grading.notes.refused else None,
    )


@dataclass(frozen=True)
class Failure:
    """Tests that fail in the same way: why, which, and the numbers of the first one."""

    headline: str
    tests: str
    count: int
    lines: Sequence[str]

    @classmethod
    def of(cls, kind: Kind) -> Self:
        """Say no more than the headline where something else has said it, or nothing is written."""
        first = kind.results[0]
        tests = "" if first.check is Check.NOT_WRITTEN else names_of(kind.results).replace("`", "")
        if kind.told or first.check in (Check.NOT_WRITTEN, Check.RULES):
            return cls(first.headline.rstrip(":"), tests, len(kind.results), ())
        lines = shown("\n".join(first.text.splitlines()[1:])).splitlines()
        more = [f"({len(lines) - MAX_BLOCK} more lines)"] if len(lines) > MAX_BLOCK else []
        lines = [f"{first.test}:", *lines[:MAX_BLOCK], *more] if lines else []
        return cls(first.headline.rstrip(":"), tests, len(kind.results), lines)


def _line(text: str) -> str:
    """A text in one line, cut off where nobody reads on."""
    line = " ".join(text[: 4 * LONGEST].split())
    return line if len(line) <= LONGEST else line[:LONGEST] + "…"


def _percent(share: float) -> int:
    """Whole percent, of which 0 and 100 mean none and all."""
    return round(100 * share) if share in (0, 1) else min(99, max(1, round(100 * share)))
