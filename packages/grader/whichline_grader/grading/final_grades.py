"""The grade of each student: the attempt that counts, what lateness leaves of its points, and tables of grades."""

import csv
import io
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isclose
from pathlib import Path

from whichline.engine.errors import CourseworkError
from whichline_grader.grading.course import IDENTITY, TOTAL, Course, Roster
from whichline_grader.grading.gradebook import Gradebook
from whichline_grader.grading.graded import Grading
from whichline_grader.grading.identity import HandedIn, Student, add_groups
from whichline_grader.grading.writing import write_atomically
from whichline_grader.sandbox.printable import printable

SHOWN = 5  # students who fit what was said
# Where a cell begins, whichever of these separates cells for the spreadsheet, and what would be one to run.
FORMULA = re.compile(r'(^|[;\t\n])(?=[\s"]*[=+\-@＝＋－＠])')
EARLIER = "graded by an earlier suite"
UNSURE = "which attempt was the last is not known, the one graded last counts"


@dataclass(frozen=True)
class Grade:
    """The points of one student, and the attempt that they are for."""

    student: Student  # who
    handed: HandedIn  # the attempt
    grading: Grading  # its results
    days_late: int | None  # of this attempt, if that is known
    penalty: float  # what lateness costs, in points
    lateness: str = ""  # the same in words; empty if the attempt is not late
    attempt: int = 1  # which one it is, counted from 1
    attempts: int = 1  # how many there were
    instead: str = ""  # the submission of the student's that counts, if this one does not
    unsure: "Sequence[Grade]" = ()  # attempts that may have come later: this one was graded last

    @property
    def id(self) -> str:
        return self.grading.submission

    @property
    def who(self) -> str:
        """The student, for people: name and number."""
        return " ".join(dict.fromkeys(filter(None, (self.student.name, self.student.key))))

    @property
    def points(self) -> float:
        """The grade that counts in the end."""
        return self.grading.points - self.penalty


def grades(gradebook: Gradebook, course: Course) -> list[Grade]:
    """One grade for each student, for the last or the best of all attempts that were ever graded; by key."""
    gradings = list(gradebook.attempts())
    keys = {student.key for grading in gradings for student in grading.handed_in.students}
    course = match_extensions(course, keys | {member.key for key in keys for member in course.members.get(key, ())})
    attempts: dict[str, list[Grade]] = {}
    for grading in gradings:
        for grade in compute_grades_of(grading, course):
            attempts.setdefault(grade.student.key, []).append(grade)
    names, found = course.list_names(attempts), []
    for key, theirs in sorted(attempts.items()):
        chosen = _choose(theirs, course.attempt, gradebook.decisions.counts.get(key))
        found.append(replace(chosen, student=replace(chosen.student, name=names.get(key, chosen.student.name))))
    return found


def compute_grades_of(grading: Grading, course: Course) -> list[Grade]:
    """One grade for each student who handed this in, as if it were the only attempt."""
    handed = grading.handed_in
    if handed.at is None:
        handed = replace(handed, at=course.times_of_upload.get(handed.order))
    handed = add_groups(handed, course.members)
    found = []
    for student in handed.students:
        days = course.days_late(student.key, handed)
        late = course.describe_lateness(days, handed)
        found.append(Grade(student, handed, grading, days, course.penalty(days) * grading.points, late))
    return found


@dataclass(frozen=True)
class Entry:
    """One submission of the class that counts, without texts, and the grades of its students, several in a group."""

    grading: Grading
    grades: tuple[Grade, ...]

    @property
    def id(self) -> str:
        return self.grading.submission

    @property
    def names(self) -> list[str]:
        return [grade.student.name or grade.student.key for grade in self.grades]

    @property
    def final(self) -> list[float]:
        """Grades after the penalty: a group has several where its members have deadlines of their own."""
        return sorted({round(grade.points, 9) for grade in self.grades})


def group_by_submission(found: Iterable[Grade]) -> list[Entry]:
    together: dict[str, list[Grade]] = {}
    for grade in found:
        together.setdefault(grade.grading.submission, []).append(grade)
    return [Entry(grades[0].grading, tuple(grades)) for _, grades in sorted(together.items())]


def find_grade(found: Iterable[Grade], said: str) -> Grade:
    """The grade of a student, by submission, number with or without its zeros, name, or words that are a part of those.

    CourseworkError if nobody fits, or several do.
    """
    words, found = said.casefold().replace(",", " ").split(), list(found)
    for fits in (
        [each for each in found if said in (each.grading.submission, each.student.key)],
        [each for each in found if said.lstrip("0") == each.student.key.lstrip("0")],
        [each for each in found if words == each.student.name.casefold().replace(",", " ").split()],
        [each for each in found if all(_is_part(word, f"{each.who} {each.id}".casefold()) for word in words)],
    ):
        if len({each.id for each in fits}) > 1:
            several = ", ".join(f"{each.who}: {each.id}" for each in fits[:SHOWN])
            raise CourseworkError(f"{said} may be {len(fits)} students: {several}{' ...' * (len(fits) > SHOWN)}")
        if fits:
            return fits[0]
    raise CourseworkError(f"no student or submission is called {said}; grades.csv lists the names")


def _is_part(word: str, text: str) -> bool:
    """Tell whether a word is part of a text; a number is not part of a longer one: it may be mistyped."""
    return word in (re.split(r"[\W_]+", text) if word.isdigit() else text)


def match_extensions(course: Course, students: Collection[str]) -> Course:
    """Let an extension of 2 be that of 0002, where no other student has that number."""
    bare = {key: [each for each in students if each.lstrip("0") == key.lstrip("0")] for key in course.extensions}
    own = {key: bare[key][0] if key not in students and len(bare[key]) == 1 else key for key in course.extensions}
    return replace(course, extensions={own[key]: due for key, due in course.extensions.items()})


def _choose(attempts: Sequence[Grade], counts: str, decided: str | None) -> Grade:
    """The attempt that counts, the "last" or the "best", of those of one student in the order of grading.

    Staff may have `decided` on one, by the first digits of its content.
    """
    named = [each for each in attempts if decided and each.grading.content.startswith(decided)]
    chosen, *others = named or attempts
    for each in others:
        later = each.handed.is_later(chosen.handed) is not False
        if later if counts == "last" or each.points == chosen.points else each.points > chosen.points:
            chosen = each
    unordered = (each for each in attempts if each.handed.is_later(chosen.handed) is None)
    unsure = [each for each in unordered if not isclose(each.points, chosen.points)]
    unsure = unsure if counts == "last" and not named else []
    place = attempts.index(chosen)
    later = [chosen.handed.is_later(each.handed) for each in attempts]
    number = 1 + sum(i < place if is_later is None else is_later for i, is_later in enumerate(later))
    return replace(chosen, attempt=number, attempts=len(attempts), unsure=unsure)


def write_grades(path: Path, found: Sequence[Grade], problems: Sequence[str]) -> None:
    """One row for each student: what was handed in and when, the points of each problem, their sum, and the grade.

    `days_late` is empty when the time is not known; `late` is then what Canvas says. `grade` is what is left of the
    points after the penalty. `violations` counts lines, `notes` are for staff.
    """
    suite = find_last_suite(found)
    columns = ["student", "name", "email", "submission", "attempt", "attempts", "group", "late", "days_late", *problems]
    rows: list[list[object]] = [[*columns, "points", "maximum", "penalty", "grade", "violations", "notes"]]
    for grade in found:
        handed, grading, days, student = grade.handed, grade.grading, grade.days_late, grade.student
        group = ";".join(student.key for student in handed.students) if len(handed.students) > 1 else ""
        row = [student.key, student.name, student.email, grading.submission, grade.attempt, grade.attempts]
        late = handed.late if days is None else days > 0
        row += [group, "yes" if late else "", "" if days is None else days]
        row += [_format_points(grading.compute_points(problem)) for problem in problems]
        row += [_format_points(points) for points in (grading.points, grading.maximum, grade.penalty, grade.points)]
        row += [sum(map(len, grading.violations.values())) + grading.meddled, "; ".join(_describe_notes(grade, suite))]
        rows.append(row)
    write_table(path, rows)


def write_table(path: Path, rows: Iterable[Iterable[object]], inert: bool = True) -> None:
    """Write a csv file that is there whole or not at all; if `inert`, with no cell that a spreadsheet would run."""
    text = io.StringIO(newline="")
    for row in rows:  # printable text commands no terminal either
        cells = (FORMULA.sub(r"\1'", printable(x)) if inert and isinstance(x, str) else x for x in row)
        csv.writer(text).writerow(cells)
    write_atomically(path, text.getvalue())


def write_canvas(path: Path, roster: Roster, found: Iterable[Grade], column: str) -> list[str]:
    """Write the points into a `column` of a copy of a roster, for Canvas; return who has a grade and is not in it."""
    kept = [name for name in roster.columns if name in IDENTITY]
    waiting = {grade.student.key: grade for grade in found}
    key = roster.find_column(waiting)
    maximum = max((grade.grading.maximum for grade in waiting.values()), default=0.0)
    lines = [[*kept, column]]
    for row in roster.rows:
        grade = waiting.pop(row.get(key, ""), None)
        points = "" if grade is None else _format_points(grade.points)
        if row["Student"].strip() == TOTAL:
            points = _format_points(maximum)
        lines.append([*(row[name] for name in kept), points])
    write_table(path, lines, inert=False)  # Canvas knows its own names
    return [f"{grade.student.name} ({grade.grading.submission})" for grade in waiting.values()]


def find_last_suite(found: Sequence[Grade]) -> str:
    return max((grade.grading for grade in found), key=lambda grading: grading.started).suite if found else ""


def _describe_notes(grade: Grade, suite: str) -> Iterator[str]:
    grading = grade.grading
    if grading.notes.refused:
        yield f"not run: {grading.notes.refused}"
    yield from grading.decisions
    yield from grading.notes.taken_in
    yield from grading.notes.doubts
    if grade.handed.late and grade.days_late is None:
        yield "late, by how much is not known: no penalty"
    if grade.unsure:
        yield UNSURE
    if grading.suite != suite:
        yield EARLIER
    if grading.not_run:
        yield f"{grading.not_run} tests not run"


def _format_points(points: float) -> str:
    return f"{round(points, 4):g}"
