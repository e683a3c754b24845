"""Count what costs a class points, in one table that all numbers of its page come from, and say what to teach next."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cs336_kit.engine.assignment import Problem
from cs336_kit.engine.result import Outcome
from cs336_staff.grading.grades import Grade
from cs336_staff.grading.grading import Grading
from cs336_staff.grading.losses import Kind, Loss, add_up, divide_losses, elide_numbers

MOST_EXAMPLES = 3
SAYS = {
    Kind.NOT_WRITTEN: "{} is not written.",
    Kind.NOT_OWN: "{} is computed by a function that students must write themselves.",
    Kind.NOT_RUN: "Tests of {} are newer than the grading, and were not run.",
    Kind.UNEXPLAINED: "Tests of {} fail, and nothing was found that explains it.",
}


@dataclass(frozen=True)
class Entry:
    """One submission of the class.

    Args:
        grading: the attempt that counts, without texts.
        grades: those of its students, several in a group.
    """

    grading: Grading
    grades: tuple[Grade, ...]

    @property
    def id(self) -> str:
        """Its name, and that of its page."""
        return self.grading.submission

    @property
    def names(self) -> list[str]:
        return [grade.student.name or grade.student.key for grade in self.grades]

    @property
    def refused(self) -> bool:
        return bool(self.grading.notes.refused)

    @property
    def final(self) -> list[float]:
        """Grades after the penalty: a group has several where its members have deadlines of their own."""
        return sorted({round(grade.points, 9) for grade in self.grades})

    @property
    def unsure(self) -> bool:
        """Tell whether an attempt may have come later than this one."""
        return any(grade.unsure for grade in self.grades)

    @property
    def meddled(self) -> int:
        """The tests to which something other than the sandbox's own code wrote the answer."""
        return sum(result.outcome is Outcome.VIOLATION for result in self.grading.results)

    @property
    def accused(self) -> bool:
        """Tell whether the rules are broken, also where staff have overruled that."""
        return bool(self.meddled or self.grading.violations)

    @property
    def not_run(self) -> bool:
        """Tell whether a test is newer than its grading."""
        return any(result.outcome is Outcome.NOT_RUN for result in self.grading.results)


def group_by_submission(found: Iterable[Grade]) -> list[Entry]:
    """Put the students of one submission together, by its name."""
    together: dict[str, list[Grade]] = {}
    for grade in found:
        together.setdefault(grade.grading.submission, []).append(grade)
    return [Entry(grades[0].grading, tuple(grades)) for _, grades in sorted(together.items())]


@dataclass
class ClassLoss:
    """One thing that costs a class points.

    Args:
        loss: the same in one submission, with the points that all lost.
        problem: where it is wrong first.
        entries: the submissions that lose points by it, by name.
        examples: lines of code that it is in.
        said: what was found, in the words of each submission.
    """

    loss: Loss
    problem: Problem
    entries: dict[str, Entry] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)
    said: dict[str, None] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.loss.finding.id

    @property
    def says(self) -> str:
        """Say what is wrong without its place, and without numbers that are not true of all."""
        if self.loss.kind in SAYS:
            return SAYS[self.loss.kind].format(self.problem.title)
        first, *others = self.said
        if not others:
            return first
        alike = dict.fromkeys(map(elide_numbers, self.said))
        return next(iter(alike)) if len(alike) == 1 else f"For example: {first}"

    @property
    def students(self) -> int:
        return count_students([self])

    @property
    def later(self) -> str:
        """The other problems in which it costs points."""
        return ", ".join(each.title for id, each in self.loss.problems.items() if id != self.problem.id)


def count_losses(entries: Iterable[Entry], problems: Mapping[str, Problem]) -> list[ClassLoss]:
    """List what costs a class points, the costliest first; what has one root is one thing."""
    found: dict[tuple[str, str, Kind], ClassLoss] = {}
    for entry in entries:
        for loss in divide_losses(entry.grading, problems):
            finding = loss.finding
            root = problems[finding.problem]
            one = found.setdefault((root.id, finding.id, loss.kind), ClassLoss(Loss(loss.kind, finding), root))
            one.loss.add_all(loss)
            one.entries[entry.id] = entry
            one.said[" ".join(finding.said) or finding.id] = None
            if loss.line and loss.line not in one.examples[:MOST_EXAMPLES]:
                one.examples = [*one.examples, loss.line][:MOST_EXAMPLES]
    return sorted(found.values(), key=lambda each: (*each.loss.order, -len(each.entries)))


def count_students(losses: Iterable[ClassLoss]) -> int:
    """Those who lose points by any of these."""
    entries = {id: entry for each in losses for id, entry in each.entries.items()}
    return sum(len(entry.grades) for entry in entries.values())


def teach_next(losses: Sequence[ClassLoss], ran: Collection[Entry]) -> str:
    """Say which problem to teach next: what is wrong there costs the class most."""
    if not ran:
        return "No submission was run: find out why before you teach anything."
    by_problem: dict[str, list[ClassLoss]] = {}
    for each in losses:
        if each.loss.points:
            by_problem.setdefault(each.problem.id, []).append(each)
    if not by_problem:
        return "Nobody loses a point: go on to what comes next."
    worst = max(by_problem.values(), key=lambda each: add_up(one.loss for one in each).points)
    points = add_up(each.loss for each in worst).points
    section = next((each.loss.finding.section for each in worst if each.loss.finding.section), "")
    place = f" (handout, section {section})" if section else ""
    students = sum(len(entry.grades) for entry in ran)
    who = f"{count_students(worst)} of {students} student{'s' * (students > 1)}"
    return f"Teach {worst[0].problem.title}{place} next: what is wrong there costs {who} {points:.1f} points."
