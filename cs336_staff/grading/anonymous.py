"""Pages without names: random numbers for submissions, and no words of a student, or of staff about one.

Who wrote a message, the name of a file or a line of code may be recognised by it, and may have put a name into it. What
is left is what was measured, in sentences of our own.
"""

import random
import re
from collections.abc import Iterable
from dataclasses import replace

from cs336_kit.engine.finding import Finding
from cs336_kit.engine.result import Check, Outcome, Result
from cs336_staff.grading.class_page import Entry
from cs336_staff.grading.gradebook import NEW
from cs336_staff.grading.grading import Grading, Notes
from cs336_staff.grading.hidden_results import RAISED, sentence
from cs336_staff.grading.identity import HandedIn, Student

REFUSED = "what was handed in could not be taken in"
REMARK = "something in what was handed in was left out, or chosen"
VIOLATION = "right, but not by the student's own work"
FORBIDDEN = "a function that students must write themselves"
DECIDED = "after a regrade request"


def draw_numbers(ids: Iterable[str]) -> dict[str, str]:
    """Draw a number for each submission, at random and anew each time, so that their order says nothing."""
    drawn = [*ids]
    random.SystemRandom().shuffle(drawn)
    digits = len(str(len(drawn)))
    return {id: f"submission-{number:0{digits}}" for number, id in enumerate(drawn, start=1)}


def make_anonymous(entry: Entry, number: str) -> Entry:
    """The same submission under a number, by nobody."""
    grading, nobody = without_words(entry.grading, number), Student(number, number)
    grades = [replace(each, student=nobody, handed=grading.handed_in, grading=grading) for each in entry.grades]
    return Entry(grading, tuple(grades))


def without_words(grading: Grading, number: str) -> Grading:
    """The same grading under another name, without anything that its student wrote, or staff about it."""
    notes = grading.notes
    return replace(
        grading,
        submission=number,
        path="",
        content="",
        handed_in=HandedIn((Student(number, number),)),
        notes=Notes(
            refused=REFUSED if notes.refused else "",
            taken_in=(REMARK,) if notes.taken_in else (),
            forbidden={problem: dict.fromkeys(works, (FORBIDDEN,)) for problem, works in notes.forbidden.items()},
            explanations=tuple(_strip(each) for each in notes.explanations),
            weights=notes.weights,
            peak_memory=notes.peak_memory,
        ),
        results=[replace(each, headline=_say_what(each), details=(), staff="") for each in grading.results],
        overruled=dict.fromkeys(grading.overruled, DECIDED),
        adjusted={problem: (points, DECIDED) for problem, (points, _) in grading.adjusted.items()},
        comments=(),
    )


def _strip(finding: Finding) -> Finding:
    """Keep what was measured: words of the student's are between backquotes, or in what an exception says."""
    said = tuple(re.sub("`.*`", "…", re.sub(r"^(\w+): .*", r"\1", line), flags=re.DOTALL) for line in finding.said)
    return replace(finding, said=said, file="", line=0, function="", columns=(0, 0), code=(), likewise=())


def _say_what(result: Result) -> str:
    if result.passed or result.outcome is Outcome.NOT_RUN:
        return "" if result.passed else NEW
    if result.outcome is Outcome.VIOLATION:
        return VIOLATION
    if result.check is Check.NOT_WRITTEN:
        return "not implemented yet"
    if result.check in (Check.CALL, None):
        raised = result.headline.partition(":")[0].partition(" ")[0]
        return raised if raised in RAISED else "an exception, or no answer"
    return sentence(result.headline)
