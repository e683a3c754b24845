"""Count what costs a class points, in one table that all numbers of its page come from."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from whichline.engine.assignment import Problem
from whichline_grader.grading.deductions import Deduction, Kind, add_up, elide_numbers
from whichline_grader.grading.final_grades import Entry
from whichline_grader.grading.report import Report

MOST_EXAMPLES = 3
SAYS = {
    Kind.NOT_WRITTEN: "{} is not written.",
    Kind.NOT_OWN: "{} is computed by a function that students must write themselves.",
    Kind.NOT_RUN: "Tests of {} are newer than the grading, and were not run.",
    Kind.UNEXPLAINED: "Tests of {} fail, and nothing was found that explains it.",
}


@dataclass
class ClassDeduction:
    """One thing that costs a class points."""

    deduction: Deduction  # the same in one submission, with the points that all lost
    problem: Problem  # where it is wrong first
    entries: dict[str, Entry] = field(default_factory=dict)  # the submissions that lose points by it, by name
    examples: list[str] = field(default_factory=list)  # lines of code that it is in
    said: dict[str, None] = field(default_factory=dict)  # what was found, in the words of each submission

    @property
    def id(self) -> str:
        return self.deduction.finding.id

    @property
    def says(self) -> str:
        """Say what is wrong without its place, and without numbers that are not true of all."""
        if self.deduction.kind in SAYS:
            return SAYS[self.deduction.kind].format(self.problem.title)
        first, *others = self.said
        if not others:
            return first
        alike = dict.fromkeys(map(elide_numbers, self.said))
        return next(iter(alike)) if len(alike) == 1 else f"For example: {first}"

    @property
    def later(self) -> str:
        return ", ".join(each.title for id, each in self.deduction.problems.items() if id != self.problem.id)


def count_deductions(reports: Iterable[tuple[Entry, Report]]) -> list[ClassDeduction]:
    """List what costs a class points, the costliest first; what has one root is one thing."""
    found: dict[tuple[str, str, Kind], ClassDeduction] = {}
    for entry, report in reports:
        for deduction in report.deductions:
            finding = deduction.finding
            root = report.problems[finding.problem]
            of_class = ClassDeduction(Deduction(deduction.kind, finding), root)
            one = found.setdefault((root.id, finding.id, deduction.kind), of_class)
            one.deduction.add_all(deduction)
            one.entries[entry.id] = entry
            one.said[" ".join(finding.said) or finding.id] = None
            if deduction.line and deduction.line not in one.examples[:MOST_EXAMPLES]:
                one.examples = [*one.examples, deduction.line][:MOST_EXAMPLES]
    return sorted(found.values(), key=lambda each: (*each.deduction.order, -len(each.entries)))


def count_students(deductions: Iterable[ClassDeduction]) -> int:
    entries = {id: entry for each in deductions for id, entry in each.entries.items()}
    return sum(len(entry.grades) for entry in entries.values())


def teach_next(deductions: Sequence[ClassDeduction], ran: Collection[Entry]) -> str:
    """Say which problem to teach next: what is wrong there costs the class most."""
    if not ran:
        return "No submission was run: find out why before you teach anything."
    by_problem: dict[str, list[ClassDeduction]] = {}
    for each in deductions:
        if each.deduction.points:
            by_problem.setdefault(each.problem.id, []).append(each)
    if not by_problem:
        return "Nobody loses a point: go on to what comes next."
    worst = max(by_problem.values(), key=lambda each: add_up(one.deduction for one in each).points)
    points = add_up(each.deduction for each in worst).points
    section = next((each.deduction.finding.section for each in worst if each.deduction.finding.section), "")
    place = f" (handout, section {section})" if section else ""
    students = sum(len(entry.grades) for entry in ran)
    who = f"{count_students(worst)} of {students} student{'s' * (students > 1)}"
    return f"Teach {worst[0].problem.title}{place} next: what is wrong there costs {who} {points:.1f} points."
