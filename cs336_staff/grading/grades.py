"""The grade of each student: the attempt that counts, and what is left of its points after lateness."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from math import isclose

from cs336_kit.engine.errors import CourseworkError
from cs336_staff.grading.course import Course
from cs336_staff.grading.gradebook import Gradebook
from cs336_staff.grading.grading import Grading
from cs336_staff.grading.identity import HandedIn, Student, with_groups

SHOWN = 5  # students who fit what was said


@dataclass(frozen=True)
class Grade:
    """The points of one student, and the attempt that they are for.

    Args:
        student: who.
        handed: the attempt.
        grading: its results.
        days_late: of this attempt, if that is known.
        penalty: what lateness costs, in points.
        lateness: the same in words; empty if the attempt is not late.
        attempt: which one it is, counted from 1.
        attempts: how many there were.
        instead: the submission of the student's that counts, if this one does not.
        unsure: attempts that may have come later: it counts as the last one because it was graded last.
    """

    student: Student
    handed: HandedIn
    grading: Grading
    days_late: int | None
    penalty: float
    lateness: str = ""
    attempt: int = 1
    attempts: int = 1
    instead: str = ""
    unsure: "Sequence[Grade]" = ()

    @property
    def id(self) -> str:
        """The name of the submission."""
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
        for grade in grades_of(grading, course):
            attempts.setdefault(grade.student.key, []).append(grade)
    names = course.names_of(attempts)
    decided = gradebook.decisions.counts
    chosen = {key: _choose(theirs, course.attempt, decided.get(key)) for key, theirs in sorted(attempts.items())}
    return [replace(each, student=replace(each.student, **names.get(key, {}))) for key, each in chosen.items()]


def grades_of(grading: Grading, course: Course) -> list[Grade]:
    """One grade for each student who handed this in, as if it were the only attempt."""
    handed = grading.handed_in
    if handed.at is None:
        handed = replace(handed, at=course.came.get(handed.order))
    handed = with_groups(handed, course.members)
    found = []
    for student in handed.students:
        days = course.days_late(student.key, handed)
        late = course.say_late(days, handed)
        found.append(Grade(student, handed, grading, days, course.penalty(days) * grading.points, late))
    return found


def find_grade(found: Iterable[Grade], said: str) -> Grade:
    """The grade of a student, by submission, number with or without its zeros, name, or words that are a part of those.

    Raises:
        CourseworkError: nobody fits, or several do.
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


def account_for(found: Iterable[Grade]) -> list[tuple[str, str]]:
    """Give what lateness costs, and the grade: in words and in points; by name where members of a group differ."""
    alike: dict[tuple[str, float, str], list[Grade]] = {}
    for each in found:
        alike.setdefault((each.lateness, each.penalty, each.instead), []).append(each)
    lines = []
    for (lateness, penalty, instead), together in alike.items():
        who = " and ".join(each.student.name or each.student.key for each in together)
        who, grade = f" of {who}" if len(alike) > 1 else "", together[0]
        if lateness:
            lines.append((f"Lateness{who}: {lateness}", f"{0 - penalty:.2f}"))
        counts = f", if {instead} did not count" if instead else ""
        lines.append((f"Grade{who}{counts}", f"{grade.points:.2f} / {grade.grading.maximum:g}"))
    return lines


def say_points(grading: Grading, found: Iterable[Grade]) -> str:
    """The grade, or the points while no grade is known, of all that there are."""
    left = sorted({f"{each.points:.2f}" for each in found}) or [f"{grading.points:.2f}"]
    return f"{' / '.join(left)} of {grading.maximum:g} points"


def match_extensions(course: Course, students: Collection[str]) -> Course:
    """Let an extension of 2 be that of 0002, where no other student has that number."""
    bare = {
        key: [student for student in students if student.lstrip("0") == key.lstrip("0")] for key in course.extensions
    }
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
    unsure = [
        each
        for each in attempts
        if each.handed.is_later(chosen.handed) is None and not isclose(each.points, chosen.points)
    ]
    unsure = unsure if counts == "last" and not named else []
    place = attempts.index(chosen)
    later = [chosen.handed.is_later(each.handed) for each in attempts]
    number = 1 + sum(i < place if is_later is None else is_later for i, is_later in enumerate(later))
    return replace(chosen, attempt=number, attempts=len(attempts), unsure=unsure)
