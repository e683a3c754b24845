"""A submission as it was graded: its results, what else a report says, what staff decided, and its points.

Some may read less of it. A submission sees hidden inputs, and could spell them in whatever it says: in texts, numbers
and shapes, in the lines that an exception goes through, in the case that is the smallest it fails on. So what failed in
a hidden test is said in fixed sentences (`for_student`), with the name of one of a few dozen functions in the source.
And who wrote a message, the name of a file or a line of code may be recognised by it (`without_words`).
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import cache, cached_property
from itertools import chain, groupby, repeat
from typing import Any, NamedTuple

import msgspec

from whichline.engine.assignment import Problem
from whichline.engine.finding import Finding
from whichline.engine.result import Check, Outcome, Result
from whichline.rules.price import charge
from whichline_grader.grading.identity import HandedIn, Student
from whichline_grader.sandbox.submission import Submission

# A row for each query; None is NaN or infinite.
Matrix = tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class Notes:
    """Everything that a report says besides the results.

    Args:
        refused: why the submission was not run, if it was not.
        stdout, stderr: what it wrote during the public tests.
        missing: packages that it imports and the grader lacks.
        taken_in: what was left out of what was handed in, or chosen.
        could_hide: lines of its source that could hide what they call, for staff alone.
        copied: its functions that have the body of a reference, for staff alone.
        alone: problems that fail, and were lent nothing of an earlier one that fails, too.
        trouble: why the search for mistakes gave less than it might have, for staff alone.
        forbidden: of each problem, in their order, the works that students must do themselves and that something else
            did, each with the lines that ran it.
        explanations: what was found.
        weights: what a figure shows of it, if it gave that.
    """

    refused: str = ""
    stdout: str = ""
    stderr: str = ""
    missing: tuple[str, ...] = ()
    taken_in: tuple[str, ...] = ()
    could_hide: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    trouble: str = ""
    forbidden: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    explanations: tuple[Finding, ...] = ()
    weights: Matrix = ()

    @property
    def doubts(self) -> list[str]:
        """Say what staff should look at, each in a sentence."""
        hide = [f"could hide what it calls: {'; '.join(self.could_hide)}"] if self.could_hide else []
        copied = [f"has the body of a reference: {'; '.join(self.copied)}"] if self.copied else []
        twice = f"may pay twice for a mistake, since nothing was lent to it: {', '.join(self.alone)}"
        return [*hide, *copied, *([twice] if self.alone else []), *([self.trouble] if self.trouble else [])]

    def as_json(self) -> str:
        """One line, which `notes_from_json` reads."""
        return json.dumps(asdict(self), ensure_ascii=False)


def notes_from_json(text: str) -> Notes:
    """The notes that `Notes.as_json` wrote, here or in another version, without what only that one notes.

    Raises:
        ValueError: it did not.
    """
    return read_notes(msgspec.json.decode(text, type=dict[str, Any]))


def read_notes(said: dict[str, Any]) -> Notes:
    """The notes with these fields."""
    found = said.pop("explanations", ())
    return replace(msgspec.convert(said, Notes), explanations=tuple(filter(None, map(read_finding, found))))


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


def add_up_results(results: Iterable[Result]) -> dict[str, Score]:
    """The score of each problem."""
    own: dict[str, list[Result]] = {}
    for result in results:
        own.setdefault(result.problem, []).append(result)
    return {
        problem: Score(
            each[0].bonus,
            len(each),
            sum(result.passed for result in each),
            sum(result.outcome is Outcome.VIOLATION for result in each),
            sum(result.outcome is Outcome.NOT_RUN for result in each),
            math.fsum(result.maximum for result in each),
            math.fsum(result.points for result in each),
        )
        for problem, each in own.items()
    }


class Worth(NamedTuple):
    """The worth of a test function: the points of one case, the number of cases, and how many of them were run."""

    problem: Problem
    points: float
    cases: int
    ran: int


def add_up_counts(worth: Mapping[str, Worth], failed: Mapping[str, Sequence[int]]) -> dict[str, Score]:
    """The score of each problem, when so many cases of these tests did not pass, and so many of them for meddling."""
    scores = {}
    for id, own in groupby(worth.items(), lambda each: each[1].problem.id):
        each = [(one, *failed.get(test, (0, 0))) for test, one in own]
        scores[id] = Score(
            each[0][0].problem.bonus,
            sum(one.cases for one, _, _ in each),
            sum(one.ran - count for one, count, _ in each),
            sum(meddled for _, _, meddled in each),
            sum(one.cases - one.ran for one, _, _ in each),
            math.fsum(chain.from_iterable(repeat(one.points, one.cases) for one, _, _ in each)),
            math.fsum(chain.from_iterable(repeat(one.points, one.ran - count) for one, count, _ in each)),
        )
    return scores


@dataclass(frozen=True)
class Grading:
    """One submission, graded.

    Args:
        submission: its name.
        path: where it lay.
        content: sha256 of what was handed in.
        suite: sha256 of what it was graded with.
        seed: of the release of the hidden suite.
        layer: the sandbox that was achieved.
        started: when, with the offset from UTC.
        seconds: how long it took.
        notes: what else the report says.
        handed_in: by whom, and when.
        results: one for every test, scored with the present weights; none where a class is read without texts.
        scores: what they add up to, by problem.
        overruled: the problems in which staff counted what breaks the rules, and why.
        adjusted: the problems to whose points staff added something, how much and why.
        comments: what staff say besides.
        id: in the gradebook.
    """

    submission: str
    path: str
    content: str
    suite: str
    seed: int
    layer: str
    started: datetime
    seconds: float
    notes: Notes
    handed_in: HandedIn
    results: Sequence[Result] = field(default=(), repr=False)
    scores: Mapping[str, Score] = field(default_factory=dict, repr=False, compare=False)
    overruled: Mapping[str, str] = field(default_factory=dict)
    adjusted: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    comments: Sequence[str] = ()
    id: int = field(default=0, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.results:
            object.__setattr__(self, "scores", add_up_results(self.results))

    def results_of(self, problem: str) -> list[Result]:
        return [result for result in self.results if result.problem == problem]

    @cached_property
    def charges(self) -> dict[str, dict[str, float]]:
        """The points that each problem pays for works that are not the student's own, unless staff count them."""
        points = {problem: score.maximum for problem, score in self.scores.items()}
        ran = {problem: set(works) for problem, works in self.notes.forbidden.items() if problem in points}
        paid = charge(ran, points)
        return {problem: works for problem, works in paid.items() if problem not in self.overruled}

    @cached_property
    def violations(self) -> dict[str, list[str]]:
        """The lines that run what a problem pays for, or paid for until staff overruled it."""
        found = {}
        for problem, works in self.notes.forbidden.items():
            paid = works if problem in self.overruled else self.charges.get(problem, ())
            found[problem] = [line for work, lines in works.items() if work in paid for line in lines]
        return {problem: lines for problem, lines in found.items() if lines}

    def earned(self, problem: str) -> float:
        """The points of a problem by its tests, less what it pays."""
        points = self.scores[problem].points if problem in self.scores else 0.0
        return max(0.0, points - math.fsum(self.charges.get(problem, {}).values()))

    def maximum_of(self, problem: str) -> float:
        return self.scores[problem].maximum if problem in self.scores else 0.0

    def points_of(self, problem: str) -> float:
        """The points of a problem, adjusted: when tests or weights have changed, still from 0 to the maximum."""
        added, _ = self.adjusted.get(problem, (0.0, ""))
        return max(0.0, min(self.maximum_of(problem), self.earned(problem) + added))

    @cached_property
    def points(self) -> float:
        return math.fsum(map(self.points_of, self.scores))

    @property
    def decisions(self) -> list[str]:
        """All that staff decided about it, each in a line."""
        return [
            *(f"{problem}: counted by staff: {why}" for problem, why in self.overruled.items()),
            *(f"{problem}: {points:+g} points by staff: {why}" for problem, (points, why) in self.adjusted.items()),
            *(f"From staff: {comment}" for comment in self.comments),
        ]

    @property
    def meddled(self) -> int:
        """The tests to which something other than the sandbox's own code wrote the answer."""
        return sum(score.meddled for score in self.scores.values())

    @property
    def not_run(self) -> int:
        """The tests that are newer than it."""
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


@cache
def _sentences_of_problems() -> tuple[tuple[str, str], ...]:
    from whichline_grader.authoring.spec import load_specs  # which imports torch, and few commands need it

    return tuple(sentence for spec in load_specs().values() for sentence in spec.sentences)


def for_student(result: Result, submission: Submission, stored: bool) -> Result:
    """The result of a hidden test in words for its student; what staff may see besides is in `staff`.

    Args:
        result: what became of the test.
        submission: what was handed in.
        stored: whether the test has one stored case; of drawn ones, the submission chose the one that is told.
    """
    if result.passed:
        return result
    inputs = result.inputs if stored else ()
    headline = _say_what_failed(result) + _say_where(result, submission)
    said = replace(result, headline=headline, kind="", place="", details=(), on_paper=(), inputs=inputs)
    return replace(said, staff=result.text)


def _say_what_failed(result: Result) -> str:
    if result.outcome is Outcome.VIOLATION:
        return MEDDLED
    if result.check is Check.NOT_WRITTEN:
        return "not implemented yet"
    if result.raised:
        return result.raised if result.raised in RAISED else "an exception"
    return sentence(result)


def sentence(result: Result) -> str:
    """The headline of a wrong answer without what the submission chose: the same for all of one kind."""
    for pattern, fixed in _sentences_of_problems():
        if match := re.match(pattern, result.headline):
            return match.expand(fixed) + result.headline[match.end() :]
    return result.kind or result.headline


def _say_where(result: Result, submission: Submission) -> str:
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
        ),
        results=[
            replace(each, headline=_say_kind(each), kind="", place="", details=(), staff="") for each in grading.results
        ],
        overruled=dict.fromkeys(grading.overruled, DECIDED),
        adjusted={problem: (points, DECIDED) for problem, (points, _) in grading.adjusted.items()},
        comments=(),
    )


def _strip(finding: Finding) -> Finding:
    """Keep what was measured: words of the student's are between backquotes, or in what an exception says."""
    said = tuple(re.sub("`.*`", "…", re.sub(r"^(\w+): .*", r"\1", line), flags=re.DOTALL) for line in finding.said)
    return replace(finding, said=said, file="", line=0, function="", columns=(0, 0), code=(), likewise=())


def _say_kind(result: Result) -> str:
    if result.passed or result.outcome is Outcome.NOT_RUN:
        return "" if result.passed else result.headline
    if result.outcome is Outcome.VIOLATION:
        return VIOLATION
    if result.check is Check.NOT_WRITTEN:
        return "not implemented yet"
    if result.check in (Check.CALL, None):
        raised = result.headline.partition(":")[0].partition(" ")[0]
        return raised if raised in RAISED else "an exception, or no answer"
    return sentence(result)
