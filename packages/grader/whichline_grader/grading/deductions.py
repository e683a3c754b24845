"""Divide the points that a submission loses among what costs them.

Every point of a test that fails is counted once. A public test that fails is explained by what was found, by what is
not written yet, or by nothing. The search for what is wrong has seen no hidden input, so a hidden test is counted with
the public ones that fail like it, if any do.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, partial
from textwrap import dedent
from typing import NamedTuple

from whichline.engine.assignment import Problem, find_needs
from whichline.engine.finding import Finding
from whichline.engine.refusals import describe_refusal
from whichline.engine.result import Check, Outcome, Result
from whichline.locate.source_location import find_same
from whichline_grader.grading.graded import Grading

SMALL = 0.25  # points
MOST_NAMED = 4  # test functions


class Kind(StrEnum):
    """The kinds of things that cost points."""

    FOUND = "found"
    NOT_WRITTEN = "not-written"
    NOT_OWN = "not-own-work"
    NOT_RUN = "not-run"  # a test is newer than the grading
    UNEXPLAINED = "unexplained"  # all that is known is what the tests say


class Cause(NamedTuple):
    """The reason why a test fails: a finding, or one that is made up where nothing was found."""

    kind: Kind
    finding: Finding


Blame = Mapping[Cause, float]  # what makes a test fail, in shares that sum to 1


@dataclass
class Deduction:
    """One thing that costs points."""

    kind: Kind  # of thing
    finding: Finding  # what it is; where nothing was found, what the tests say
    problems: dict[str, Problem] = field(default_factory=dict)  # that lose points by it, the root first
    results: list[Result] = field(default_factory=list)  # the tests that are counted with it
    public: float = 0.0  # the points lost in public tests and by the rules, in problems that are not bonus
    hidden: float = 0.0  # the points lost there in hidden tests
    bonus: float = 0.0  # the points lost in bonus problems

    def add(self, points: float, problem: Problem, hidden: bool = False) -> None:
        self.problems[problem.id] = problem
        if problem.bonus:
            self.bonus += points
        elif hidden:
            self.hidden += points
        else:
            self.public += points

    def add_all(self, other: "Deduction") -> None:
        self.problems |= other.problems
        self.public += other.public
        self.hidden += other.hidden
        self.bonus += other.bonus

    @property
    def points(self) -> float:
        return self.public + self.hidden

    @property
    def order(self) -> tuple[float, float]:
        """The costliest is first; bonus points count where no others are lost."""
        return -round(self.points, 9), -round(self.bonus, 9)

    @property
    def title(self) -> str:
        """The problems: "Convolution, Pooling (bonus)"."""
        return ", ".join(each.title + " (bonus)" * each.bonus for each in self.problems.values())

    @property
    def says(self) -> str:
        """In one line what was found, or what its tests say: where their numbers differ, those of the first."""
        if self.kind is not Kind.UNEXPLAINED:
            return " ".join(self.finding.said).rstrip(":")
        headline = self.visible[0].headline.rstrip(":")
        return headline + ", for example" * any(each.headline != self.visible[0].headline for each in self.visible)

    @property
    def cost(self) -> str:
        """The points that are lost: "4.49 points, 3.87 of them in hidden tests"."""
        if not self.points:
            return f"{self.bonus:.2f} bonus points lost"
        hidden = f", {self.hidden:.2f} of them in hidden tests" if 0 < self.hidden < self.points else ""
        return f"{self.points:.2f} points lost{hidden}" + f", and {self.bonus:.2f} bonus points" * bool(self.bonus)

    @property
    def place(self) -> str:
        """The student's line, "adapters.py:3", if it is known, and the same in all of the tests."""
        if self.finding.file:
            return f"{self.finding.file}:{self.finding.line}"
        places = {result.place for result in self.visible if result.check is Check.CALL}
        return places.pop() if len(places) == 1 else ""

    @property
    def line(self) -> str:
        """The student's line, with a mark under what is wrong in it, without the file that it is in."""
        if self.kind is Kind.NOT_OWN:
            return "".join(self.finding.code)
        *_, line, marks = self.finding.code if len(self.finding.code) > 1 else ("", "")
        return dedent(f"{line}\n{marks}") if set(marks.strip()) == {"^"} else ""

    @property
    def is_small(self) -> bool:
        return max(self.points, self.bonus) < SMALL and self.kind in (Kind.FOUND, Kind.UNEXPLAINED)

    @property
    def names(self) -> str:
        """A few of the test functions, each with how many of its cases."""
        counts = Counter(result.function for result in self.visible)
        cases = {result.function: result.test for result in self.visible}
        names = [f"{count} of `{name}`" if count > 1 else f"`{cases[name]}`" for name, count in counts.items()]
        more = len(names) - MOST_NAMED
        shown = ", ".join([*names[:MOST_NAMED], *([f"… ({more} more)"] if more > 0 else [])])
        return f"hidden tests alone: {shown}" if self.visible[0].hidden else shown

    @property
    def hidden_says(self) -> list[str]:
        """A few headlines of hidden tests that say more than that of the first public one."""
        first = self.visible[0]
        kind = first.raised or first.kind or first.headline
        hidden = [each.headline for each in self.results if each.hidden and not first.hidden]
        more = {elide_numbers(headline): headline for headline in hidden if not headline.startswith(kind)}
        return [*more.values()][:MOST_NAMED]

    @property
    def example(self) -> list[str]:
        """The lines of its first public test below the headline, without the command that shows it."""
        first = self.visible[0]
        lines = [line for line in first.text.split("\n")[1:] if line and line != first.see]
        return [f"{first.test}:", *lines] if lines and not first.hidden else []

    @property
    def visible(self) -> list[Result]:
        """The public tests, of which students may know all; the hidden ones if there are no others."""
        return [result for result in self.results if not result.hidden] or self.results

    @property
    def see(self) -> str:
        """The command that shows it at home; none where only hidden tests do, or only grading refuses it."""
        if not self.visible or self.visible[0].hidden or describe_refusal(self.visible[0].text):
            return ""
        return next((result.see for result in self.visible if result.see), f'uv run pytest -k "{self.visible[0].test}"')


def divide_deductions(grading: Grading, problems: Mapping[str, Problem]) -> list[Deduction]:
    """List what costs a submission points, the costliest first; a bonus problem that is not written costs nothing."""
    deductions: dict[Cause, Deduction] = {}
    for result, blame in _blame_tests(grading, problems):
        for cause, share in blame.items():
            deduction = deductions.get(cause) or deductions.setdefault(cause, Deduction(*cause))
            deduction.results.append(result)
            deduction.add(result.maximum * share, problems[result.problem], result.hidden)
    for problem, paid in grading.rule_deductions.items():
        cost = f"{-math.fsum(paid.values()):.2f} points for {' and '.join(paid)}"
        lines = grading.violations.get(problem, [])
        kind, finding = _name(Kind.NOT_OWN, problem, (f"{problem}: {cost}. Write this yourself, without:", *lines))
        cause = Cause(kind, replace(finding, code=tuple(grading.notes.sources.get(line, "") for line in lines[-1:])))
        deductions[cause] = Deduction(*cause)
        by_tests = math.fsum(result.points for result in grading.list_results(problem))
        deductions[cause].add(by_tests - grading.earned(problem), problems[problem])
    return sorted(deductions.values(), key=lambda each: each.order)


def add_up(deductions: Iterable[Deduction]) -> Deduction:
    total = Deduction(Kind.FOUND, Finding("", "", ()))
    for each in deductions:
        total.add_all(each)
    return total


def _name(kind: Kind, problem: str, said: Iterable[str]) -> Cause:
    """Make up the finding that stands for what is known of a problem."""
    return Cause(kind, Finding(problem, f"{problem}-{kind}", tuple(said)))


def _blame_tests(grading: Grading, problems: Mapping[str, Problem]) -> Iterator[tuple[Result, Blame]]:
    """Give what makes each test fail, in a submission that was run."""
    roots = _find_roots(grading.notes.explanations, problems)
    public_first = sorted(grading.results, key=lambda each: each.hidden)
    said = [(each.problem, each.headline) for each in public_first if each.check is Check.NOT_WRITTEN]
    unwritten = {id: [headline for problem, headline in said if problem == id] for id in problems}
    find_unwritten = cache(partial(_find_unwritten, unwritten, problems))
    crashes = {  # by what is raised and where: one may break several problems
        (" ".join(finding.said[:1]), f"{finding.file}:{finding.line}"): Cause(Kind.FOUND, root)
        for finding, root in roots.items()
    }
    for problem in problems.values():
        results = grading.list_results(problem.id)
        failed = [each for each in results if not each.passed]
        if not failed or grading.notes.refused or (problem.bonus and is_unwritten(results)):
            continue
        blames: dict[str, Blame] = {}
        # Many hidden tests fail as the same public ones do, which come first.
        public = [each for each in results if not each.hidden]
        cases: dict[str, list[Result]] = {}
        for each in public:
            cases.setdefault(each.test.partition("[")[2], []).append(each)
        cases[""] = public  # a test without a case is like any
        blame_alike = cache(partial(_blame_alike, cases, blames))
        for result in sorted(failed, key=lambda each: each.hidden):
            if result.check is Check.NOT_WRITTEN:
                blame: Blame = {find_unwritten(problem.id, "" if result.hidden else result.headline): 1.0}
            elif result.outcome is Outcome.NOT_RUN:
                blame = {_name(Kind.NOT_RUN, problem.id, [result.headline]): 1.0}
            else:
                case, raises = result.test.partition("[")[2], result.check is Check.CALL
                blame = blame_alike(case, raises) if result.hidden and result.is_wrong else {}
                blame = blame or _explain(result, roots) or {_name_kind(result, crashes): 1.0}
            blames[result.test] = blame
            yield result, blame


def _find_unwritten(said: Mapping[str, list[str]], problems: Mapping[str, Problem], problem: str, text: str) -> Cause:
    """Name what is not written, in the words of a test and the earliest problem whose tests say the same.

    A hidden test has no such words, and is counted with the first public one.
    """
    text = text or said[problem][0]
    needs = (problem, *find_needs(problems, problem))
    root = next((id for id in problems if id in needs and text in said[id]), problem)
    return _name(Kind.NOT_WRITTEN, root, [text])


def _blame_alike(public: Mapping[str, Sequence[Result]], blames: Mapping[str, Blame], case: str, raises: bool) -> Blame:
    """Blame the causes of the public tests that fail alike on this case, or on any case if no public test has it."""
    alike = [each for each in public.get(case, public[""]) if each.is_wrong and (each.check is Check.CALL) is raises]
    return _share([blames[each.test] for each in alike])


def _share(blames: Sequence[Blame]) -> Blame:
    causes = dict.fromkeys(cause for blame in blames for cause in blame)
    return {cause: math.fsum(blame.get(cause, 0.0) for blame in blames) / len(blames) for cause in causes}


def _explain(result: Result, roots: Mapping[Finding, Finding]) -> Blame:
    """Blame a test on what was found that explains it, or else on what was found in its problem and names no test."""
    own = [finding for finding in roots if finding.problem == result.problem and result.is_wrong]
    named = [each for each in own if result.test in each.tests] or [each for each in own if not each.tests]
    return _share([{Cause(Kind.FOUND, roots[finding]): 1.0} for finding in named])


def _name_kind(result: Result, crashes: dict[tuple[str, str], Cause]) -> Cause:
    """Give what the test says but for its numbers, which differ between tests that fail alike."""
    kind = _name(Kind.UNEXPLAINED, result.problem, [elide_numbers(result.headline)])
    if result.check is Check.CALL and result.headline:
        return crashes.setdefault((result.headline, result.place), kind)
    return kind


def _find_roots(explanations: Sequence[Finding], problems: Mapping[str, Problem]) -> dict[Finding, Finding]:
    """Give for all that was found the earlier finding that it repeats, or itself."""
    roots: dict[Finding, Finding] = {}
    for finding in explanations:
        if finding.problem in problems:
            alike = (root for each, root in roots.items() if each.id in finding.repeats or find_same(finding, [each]))
            roots[finding] = next(alike, finding)
    return roots


def is_unwritten(results: Sequence[Result]) -> bool:
    return bool(results) and all(result.check is Check.NOT_WRITTEN for result in results)


def elide_numbers(headline: str) -> str:
    """A headline without the numbers by which tests differ that fail alike."""
    return re.sub(r"\b\d[\d.,]*\b", "…", headline)
