"""Open a class page with three sentences: what the class can do, what costs it most, and what to teach next."""

from collections.abc import Mapping, Sequence
from math import fsum

from cs336_kit.engine.assignment import Problem
from cs336_staff.grading.class_page import ABLE, Entry, FindingOfClass, count_findings

MOST = 0.75  # of the submissions, for the class to be able to
LONGEST = 240  # of a quotation
LITTLE = 0.005  # points: less is rounding


def sum_up(entries: Sequence[Entry], problems: Mapping[str, Problem]) -> tuple[str, str, str]:
    """Say it of the submissions that were run, in the problems that are not bonus."""
    ran = [entry for entry in entries if not entry.refused]
    core = [problem for problem in problems.values() if not problem.bonus]
    if not ran:
        nothing = "None of the submissions was run" if len(entries) > 1 else "The only submission was not run"
        return (
            f"{nothing}, so nothing is known yet about what the class can do.",
            "Nor is it known what it cannot do.",
            "Find out why before you teach anything: the reasons are below.",
        )
    lost = {problem.id: fsum(problem.points - each.grading.points_of(problem.id) for each in ran) for problem in core}
    return _can(ran, core), _cannot(ran, core, lost), _next(ran, core, lost, problems)


def _can(ran: Sequence[Entry], core: Sequence[Problem]) -> str:
    able = {problem.id: sum(entry.can(problem) for entry in ran) for problem in core}
    written = [problem for problem in core if able[problem.id] >= MOST * len(ran)]
    share = f"{100 * ABLE:g} % of the points or more in"
    if not written:
        best = max(core, key=lambda problem: able[problem.id])
        nearest = f"{_title(best, True)} comes closest: {share} {_of(able[best.id], ran)}."
        return f"The class cannot write any problem yet. {nearest if able[best.id] else ''}".rstrip()
    least = min(able[problem.id] for problem in written)
    at_least = "at least " * (len({able[problem.id] for problem in written}) > 1)
    return f"The class can write {_and(written)}: {share} {at_least}{_of(least, ran)}."


def _cannot(ran: Sequence[Entry], core: Sequence[Problem], lost: Mapping[str, float]) -> str:
    worst = max(core, key=lambda problem: lost[problem.id])
    if lost[worst.id] < LITTLE:
        return "Nobody loses a point."
    losing = sum(entry.grading.points_of(worst.id) < worst.points - LITTLE for entry in ran)
    unwritten = sum(not entry.wrote(worst) for entry in ran)
    which = f", of which {unwritten} did not write it" if unwritten else ""
    points = f"{lost[worst.id]:.1f} of the {fsum(lost.values()):.1f} points that are lost in all"
    return f"{_title(worst, True)} costs the class most: {points}, by {_of(losing, ran)}{which}."


def _next(
    ran: Sequence[Entry], core: Sequence[Problem], lost: Mapping[str, float], problems: Mapping[str, Problem]
) -> str:
    if max(lost.values()) < LITTLE:
        return "Nothing needs teaching again: go on to what comes next."
    sections: dict[str, list[FindingOfClass]] = {}
    for each in count_findings(ran, problems):
        if each.finding.section and each.finding.runs and each.lost:
            sections.setdefault(each.finding.section, []).append(each)
    unwritten = {problem.id: fsum(problem.points for entry in ran if not entry.wrote(problem)) for problem in core}
    least = max(core, key=lambda problem: unwritten[problem.id])
    section = max(sections, key=lambda section: fsum(each.lost for each in sections[section]), default="")
    mistakes = sections.get(section, [])
    cost = fsum(each.lost for each in mistakes)
    if unwritten[least.id] > cost:
        return f"Teach {_title(least)} next: {_of(sum(not entry.wrote(least) for entry in ran), ran)} did not write it."
    if not mistakes:
        worst = max(core, key=lambda problem: lost[problem.id])
        return f"Teach {_title(worst)} next; the examinations found no mistake that explains why its tests fail."
    first, (number, _, title) = mistakes[0], section.partition(" ")
    short = first.finding.short
    quoted = short if len(short) <= LONGEST else short[:LONGEST] + "…"
    have = len({entry.id for each in mistakes for entry in each.entries})
    most = f", {first.lost:.1f} of them this" if len(mistakes) > 1 else ""
    return (
        f"Teach section {number} of the handout next, “{title}”: mistakes in it cost {_of(have, ran)} "
        f"{cost:.1f} points{most}: “{quoted}”"
    )


def _of(k: int, ran: Sequence[Entry]) -> str:
    if len(ran) == 1:
        return "the only submission" if k else "no submission"
    return f"all {k} submissions" if k == len(ran) else f"{k} of {len(ran)} submissions"


def _and(problems: Sequence[Problem]) -> str:
    *others, last = map(_title, problems)
    return f"{', '.join(others)} and {last}" if others else last


def _title(problem: Problem, first: bool = False) -> str:
    """Its title inside a sentence, or as its `first` words: "softmax", but "RoPE"."""
    word = problem.title.partition(" ")[0]
    return problem.title if first or not word[1:].islower() else problem.title[0].lower() + problem.title[1:]
