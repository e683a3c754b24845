"""A submission as it was graded: its results, what else a report says, what staff decided, and its points."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import cached_property

from cs336_kit.engine.finding import Finding
from cs336_kit.engine.result import Result
from cs336_kit.rules.price import charge
from cs336_staff.grading.identity import HandedIn

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
        forbidden: of each problem, in their order, the works that students must do themselves and that something else
            did, each with the lines that ran it.
        explanations: what was found.
        weights: of its attention on one public case, if it gave any there.
        peak_memory: the most bytes that a process of its held at once, torch included; 0 if none is known.
    """

    refused: str = ""
    stdout: str = ""
    stderr: str = ""
    missing: tuple[str, ...] = ()
    taken_in: tuple[str, ...] = ()
    could_hide: tuple[str, ...] = ()
    forbidden: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    explanations: tuple[Finding, ...] = ()
    weights: Matrix = ()
    peak_memory: int = 0

    def as_json(self) -> str:
        """One line, which `notes_from_json` reads."""
        return json.dumps(asdict(self), ensure_ascii=False)


def notes_from_json(text: str) -> Notes:
    """The notes that `Notes.as_json` wrote."""
    fields = json.loads(text)
    forbidden = fields["forbidden"].items()
    return Notes(
        **fields
        | {name: tuple(fields.get(name, ())) for name in ("missing", "taken_in", "could_hide")}
        | {"forbidden": {id: {work: tuple(lines) for work, lines in works.items()} for id, works in forbidden}}
        | {"explanations": tuple(Finding.of(each) for each in fields["explanations"])}
        | {"weights": tuple(tuple(row) for row in fields["weights"])}
    )


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
        results: one for every test, scored with the present weights.
        overruled: the problems in which staff counted what breaks the rules, and why.
        adjusted: the problems to whose points staff added something, how much and why.
        comments: what staff say besides.
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
    results: Sequence[Result] = field(repr=False)
    overruled: Mapping[str, str] = field(default_factory=dict)
    adjusted: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    comments: Sequence[str] = ()

    def results_of(self, problem: str) -> list[Result]:
        return [result for result in self.results if result.problem == problem]

    @cached_property
    def charges(self) -> dict[str, dict[str, float]]:
        """The points that each problem pays for works that are not the student's own, unless staff count them."""
        points = {problem: self.maximum_of(problem) for problem in {result.problem for result in self.results}}
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
        points = math.fsum(result.points for result in self.results_of(problem))
        return max(0.0, points - math.fsum(self.charges.get(problem, {}).values()))

    def maximum_of(self, problem: str) -> float:
        return math.fsum(result.maximum for result in self.results_of(problem))

    def points_of(self, problem: str) -> float:
        """The points of a problem, adjusted: when tests or weights have changed, still from 0 to the maximum."""
        added, _ = self.adjusted.get(problem, (0.0, ""))
        return max(0.0, min(self.maximum_of(problem), self.earned(problem) + added))

    @cached_property
    def points(self) -> float:
        return math.fsum(self.points_of(problem) for problem in {result.problem for result in self.results})

    @property
    def decisions(self) -> list[str]:
        """All that staff decided about it, each in a line."""
        return [
            *(f"{problem}: counted by staff: {why}" for problem, why in self.overruled.items()),
            *(f"{problem}: {points:+g} points by staff: {why}" for problem, (points, why) in self.adjusted.items()),
            *(f"From staff: {comment}" for comment in self.comments),
        ]

    @cached_property
    def maximum(self) -> float:
        return math.fsum(result.maximum for result in self.results if not result.bonus)
