"""A submission as it was graded: its results, what else a report says, what staff decided, and its points.

Some may read less of it. A submission sees hidden inputs, and could spell them in whatever it says: in texts, numbers
and shapes, in the lines that an exception goes through, in the case that is the smallest it fails on. So what failed in
a hidden test is said in fixed sentences (`describe_for_student`), with the name of one of a few dozen functions in the
source. And a message, a file's name or a line of code may show who wrote it (`redact`).
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from whichline.engine.finding import Finding
from whichline.engine.result import Check, Outcome, Result
from whichline.rules.deductions import compute_deductions
from whichline_grader.grading.identity import HandedIn, Student
from whichline_grader.sandbox.submission import Submission

Matrix = tuple[tuple[float | None, ...], ...]  # None is NaN or infinite


@dataclass(frozen=True)
class Drawn:
    """The figure of a problem, as it was drawn for one submission."""

    title: str  # the heading on the page
    row: str  # what a row of a matrix is
    comparison: str  # where two matrices differ most, in a sentence
    caption: str  # what the matrices are
    yours: Matrix  # the numbers of the submission; none if it gave no usable ones
    right: Matrix  # the right numbers
    allowed: tuple[tuple[bool, ...], ...]  # of each number whether it may be other than 0


@dataclass(frozen=True)
class Notes:
    """Everything that a report says besides the results."""

    refused: str = ""  # why the submission was not run, if it was not
    stdout: str = ""  # what it wrote during the public tests
    stderr: str = ""
    missing: tuple[str, ...] = ()  # packages that it imports and the grader lacks
    taken_in: tuple[str, ...] = ()  # what was left out of what was handed in, or chosen
    could_hide: tuple[str, ...] = ()  # lines of its source that could hide what they call, for staff alone
    copied: tuple[str, ...] = ()  # its functions that have the body of a reference, for staff alone
    alone: tuple[str, ...] = ()  # problems that fail, and were lent nothing of an earlier one that fails, too
    trouble: str = ""  # why the search for mistakes gave less than it might have, for staff alone
    # of each problem, in their order, the works that students must do themselves and that something else did, each with
    # the lines that ran it
    forbidden: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)  # of such a line, what stands there in the student's file
    explanations: tuple[Finding, ...] = ()  # what was found
    figure: Drawn | None = None  # what its student sees beside what is right, if a public test of such a problem fails

    @property
    def doubts(self) -> list[str]:
        """Say what staff should look at, each in a sentence."""
        hide = [f"could hide what it calls: {'; '.join(self.could_hide)}"] if self.could_hide else []
        copied = [f"has the body of a reference: {'; '.join(self.copied)}"] if self.copied else []
        twice = f"may pay twice for a mistake, since nothing was lent to it: {', '.join(self.alone)}"
        return [*hide, *copied, *([twice] if self.alone else []), *([self.trouble] if self.trouble else [])]


def read_notes(said: dict[str, Any]) -> Notes:
    """The notes with these fields, of this version or another; ValueError if they are none."""
    found = tuple(filter(None, map(read_finding, said.pop("explanations", ()))))
    notes = msgspec.convert(said, Notes)
    return replace(notes, explanations=found) if found else notes


def read_finding(written: object) -> Finding | None:
    """The finding in a line of JSON, or in its fields, if it is one: a submission may have written anything."""
    try:
        if isinstance(written, str):
            return msgspec.json.decode(written.encode(errors="replace"), type=Finding)
        return msgspec.convert(written, Finding)
    except (ValueError, RecursionError):
        return None


class Score(NamedTuple):
    """What the results in a problem add up to, without what the rules take away and what staff decide."""

    bonus: bool
    tests: int
    passed: int
    meddled: int
    not_run: int
    maximum: float
    points: float


@dataclass(frozen=True)
class Grading:
    """One submission, graded."""

    submission: str  # its name
    path: str  # where it lay
    content: str  # sha256 of what was handed in
    suite: str  # sha256 of what it was graded with
    seed: int  # of the release of the hidden suite
    layer: str  # the sandbox that was achieved
    started: datetime  # when, with the offset from UTC
    seconds: float  # how long it took
    notes: Notes  # what else the report says
    handed_in: HandedIn  # by whom, and when
    # one for every test, scored with the present weights; none where a class is read without texts
    results: Sequence[Result] = field(default=(), repr=False)
    # what they add up to, by problem; the gradebook adds up
    scores: Mapping[str, Score] = field(default_factory=dict, repr=False, compare=False)
    waived: Mapping[str, str] = field(default_factory=dict)  # by problem, why staff counted what breaks the rules
    adjusted: Mapping[str, tuple[float, str]] = field(default_factory=dict)  # by problem, what staff added and why
    comments: Sequence[str] = ()  # what staff say besides
    id: int = field(default=0, repr=False, compare=False)  # in the gradebook

    def list_results(self, problem: str) -> list[Result]:
        return [result for result in self.results if result.problem == problem]

    @cached_property
    def rule_deductions(self) -> dict[str, dict[str, float]]:
        """The points that each problem pays for works that are not the student's own, unless staff count them."""
        points = {problem: score.maximum for problem, score in self.scores.items()}
        ran = {problem: set(works) for problem, works in self.notes.forbidden.items() if problem in points}
        paid = compute_deductions(ran, points)
        return {problem: works for problem, works in paid.items() if problem not in self.waived}

    @cached_property
    def violations(self) -> dict[str, list[str]]:
        """The lines that run what a problem pays for, or paid for until staff waived it."""
        found = {}
        for problem, works in self.notes.forbidden.items():
            paid = works if problem in self.waived else self.rule_deductions.get(problem, ())
            found[problem] = [line for work, lines in works.items() if work in paid for line in lines]
        return {problem: lines for problem, lines in found.items() if lines}

    def earned(self, problem: str) -> float:
        """The points of a problem by its tests, less what it pays."""
        points = self.scores[problem].points if problem in self.scores else 0.0
        return max(0.0, points - math.fsum(self.rule_deductions.get(problem, {}).values()))

    def compute_maximum(self, problem: str) -> float:
        return self.scores[problem].maximum if problem in self.scores else 0.0

    def compute_points(self, problem: str) -> float:
        """The points of a problem, adjusted: when tests or weights have changed, still from 0 to the maximum."""
        added, _ = self.adjusted.get(problem, (0.0, ""))
        return max(0.0, min(self.compute_maximum(problem), self.earned(problem) + added))

    @cached_property
    def points(self) -> float:
        return math.fsum(map(self.compute_points, self.scores))

    @property
    def decisions(self) -> list[str]:
        return [
            *(f"{problem}: counted by staff: {why}" for problem, why in self.waived.items()),
            *(f"{problem}: {points:+g} points by staff: {why}" for problem, (points, why) in self.adjusted.items()),
            *(f"From staff: {comment}" for comment in self.comments),
        ]

    @property
    def meddled(self) -> int:
        """The tests to which something other than the sandbox's own code wrote the answer."""
        return sum(score.meddled for score in self.scores.values())

    @property
    def not_run(self) -> int:
        return sum(score.not_run for score in self.scores.values())

    @cached_property
    def maximum(self) -> float:
        return math.fsum(score.maximum for score in self.scores.values() if not score.bonus)


# What failed in a hidden test, for its student.

MEDDLED = "something other than the grader wrote this reply: does your code write to a descriptor that it did not open?"
RAISED = (
    *("AssertionError", "AttributeError", "ImportError", "IndexError", "KeyError", "MemoryError", "NameError"),
    *("NotImplementedError", "RecursionError", "RuntimeError", "SyntaxError", "TypeError", "UnboundLocalError"),
    *("ValueError", "ZeroDivisionError"),
)


def describe_for_student(result: Result, submission: Submission, stored: bool) -> Result:
    """The result of a hidden test in words for its student; what staff may see besides is in `staff`.

    The student learns the inputs of a `stored` case, but not of a drawn one, which the submission itself has chosen.
    """
    if result.passed:
        return result
    inputs = result.inputs if stored else ()
    headline = _describe_failure(result) + _describe_position(result, submission)
    said = replace(result, headline=headline, kind="", place="", details=(), on_paper=(), inputs=inputs)
    return replace(said, staff=result.text)


def _describe_failure(result: Result) -> str:
    if result.outcome is Outcome.VIOLATION:
        return MEDDLED
    if result.check is Check.NOT_WRITTEN:
        return "not implemented yet"
    if result.raised:
        return result.raised if result.raised in RAISED else "an exception"
    return result.kind or result.headline


def _describe_position(result: Result, submission: Submission) -> str:
    """The innermost of the student's functions that an exception went through, if it is one that may be named."""
    if not result.raised:
        return ""
    named = [(file, function.rpartition(".")[2]) for file, function in reversed(result.functions)]
    return next((f" in {name} of {file}" for file, name in named if (file, name) in submission.functions), "")


# All of it, for readers who are not to know whose it is: what was measured, in sentences of our own.

REFUSED = "what was handed in could not be taken in"
REMARK = "something in what was handed in was left out, or chosen"
VIOLATION = "right, but not by the student's own work"
FORBIDDEN = "a function that students must write themselves"
DECIDED = "after a regrade request"


def redact(grading: Grading, number: str) -> Grading:
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
            figure=notes.figure,
        ),
        results=[
            replace(each, headline=_describe_kind(each), kind="", place="", details=(), staff="")
            for each in grading.results
        ],
        waived=dict.fromkeys(grading.waived, DECIDED),
        adjusted={problem: (points, DECIDED) for problem, (points, _) in grading.adjusted.items()},
        comments=(),
    )


def _strip(finding: Finding) -> Finding:
    """Keep what was measured: words of the student's are between backquotes, or in what an exception says."""
    said = tuple(re.sub("`.*`", "…", re.sub(r"^(\w+): .*", r"\1", line), flags=re.DOTALL) for line in finding.said)
    return replace(finding, said=said, file="", line=0, function="", columns=(0, 0), code=(), likewise=())


def _describe_kind(result: Result) -> str:
    if result.passed or result.outcome is Outcome.NOT_RUN:
        return "" if result.passed else result.headline
    if result.outcome is Outcome.VIOLATION:
        return VIOLATION
    if result.check is Check.NOT_WRITTEN:
        return "not implemented yet"
    if result.check in (Check.CALL, None):
        return result.raised if result.raised in RAISED else "an exception, or no answer"
    return result.kind or result.headline
