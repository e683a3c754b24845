"""The grade of each student: the attempt that counts, and what is left of its points after lateness."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

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
        attempts: how many there were.
        days_late: of this attempt, if that is known.
        penalty: what lateness costs, in points.
        lateness: the same in words; empty if the attempt is not late.
        instead: the submission of the student's that counts, if this one does not.
    """

    student: Student
    handed: HandedIn
    grading: Grading
    attempts: int
    days_late: int | None
    penalty: float
    lateness: str = ""
    instead: str = ""

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
    attempts = list(gradebook.attempts())
    last: dict[str, Grading] = {}
    for grading in attempts:
        for student in grading.handed_in.students:
            before = last.get(student.key, grading)
            last[student.key] = grading if grading.handed_in.attempt >= before.handed_in.attempt else before
    course = match_extensions(course, {member.key for key in last for member in course.members.get(key, ())} | {*last})
    chosen: dict[str, Grade] = {}
    for grading in attempts:
        is_last = any(last[student.key] is grading for student in grading.handed_in.students)
        for grade in grades_of(grading, course, is_last):
            before = chosen.get(grade.student.key)
            number = 1 + (before.attempts if before else 0)
            if before and not _counts(grade, before, course.attempt):
                grade = before
            chosen[grade.student.key] = replace(grade, attempts=number)
    names = course.names_of(chosen)
    found = [replace(each, student=replace(each.student, **names.get(key, {}))) for key, each in chosen.items()]
    return sorted(found, key=lambda grade: grade.student.key)


def grades_of(grading: Grading, course: Course, is_last: bool = True) -> list[Grade]:
    """One grade for each student who handed this in, as if it were the only attempt.

    The times that Canvas gives are those of the last attempt.
    """
    handed = grading.handed_in
    if handed.at is None and is_last:
        handed = replace(handed, at=next((course.came[s.key] for s in handed.students if s.key in course.came), None))
    handed = with_groups(handed, course.members)
    found = []
    for student in handed.students:
        days = course.days_late(student.key, handed)
        late = course.say_late(days, handed)
        found.append(Grade(student, handed, grading, 1, days, course.penalty(days) * grading.points, late))
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


def _counts(grade: Grade, before: Grade, attempt: str) -> bool:
    """Tell whether `grade` counts rather than the one before it; times are compared if both are known."""
    one, other = grade.handed, before.handed
    if attempt == "best" and grade.points != before.points:
        return grade.points > before.points
    if one.at and other.at and one.at != other.at:
        return one.at > other.at
    return one.attempt >= other.attempt
