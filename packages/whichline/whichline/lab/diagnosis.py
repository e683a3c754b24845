"""The diagnosis of some calls: each is run as a test, and failures are explained."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from rich.console import RenderableType
from rich.text import Text

from whichline.checking.board import Lines
from whichline.engine.assignment import load_problems
from whichline.engine.case import Case
from whichline.engine.finding import Finding
from whichline.engine.result import Check, Result
from whichline.engine.silence import silence
from whichline.engine.suite import Suite, Test
from whichline.lab.student import Student, find_references, list_earlier
from whichline.locate.explain import describe_errors, explain
from whichline.locate.observed import keep_state


class Diagnosis(NamedTuple):
    """The tests of some calls, with their results."""

    suite: Suite  # with one test for each call
    results: list[Result]
    explanations: Sequence[Finding]  # of the failures
    errors: Sequence[str] = ()  # of the search itself

    @property
    def wrong(self) -> list[Result]:
        return [result for result in self.results if not result.passed]

    def describe(self) -> Iterator[RenderableType]:
        """Describe the first failure, then the rest of the findings; without findings, show the smallest wrong row."""
        first = self.wrong[0]
        is_told = self.explanations or first.check in (Check.CALL, Check.NOT_WRITTEN)
        on_paper = () if is_told else ("Nothing was found that explains it.", *first.on_paper)
        yield Lines([first.headline], "bold red")
        yield Lines([*first.details, *on_paper], margin="  ")
        shown = {line.strip() for line in (first.headline, *first.details)}
        for explanation in self.explanations:
            yield Text("")
            yield Lines([line for line in explanation.lines if line.strip() not in shown], "bold")
        yield Lines(describe_errors(self.errors))


def diagnose(student: Student, cases: Sequence[Case], last_digits: bool = False) -> Diagnosis:
    """Test the student's functions on some test cases, with gradients; an exception fails the test.

    Outputs should be right to three digits or, with `last_digits`, to the last ones.
    """

    def check(case: Case) -> None:
        case.require_gradients()
        answer = getattr(student.adapters, case.call)(*case.inputs.values())
        (case.check_gradients if case.gradients else case.check)(answer)
        if last_digits:
            case.check_to_the_last_digit(answer)

    def make_test(case: Case, name: str) -> Test:
        return Test(name, check, ("", 0), stored=lambda: case, problem=references[case.call].problem)

    references = find_references()
    # Calls of earlier problems show which functions do their work. Functions from a notebook have no such calls.
    earlier = list_earlier(student.root, references[cases[0].call].problem) if student.own is None else []
    lessons = [make_test(case, f"{case.call}[{case.name}]") for case in earlier]
    tests = [make_test(case, case.name) for case in cases]
    problems = load_problems(student.root) if student.own is None else {}
    suite = Suite(student.root, problems, tests, student.adapters, cell=student.cell)
    errors: list[str] = []
    with silence(), keep_state():
        results = [suite.run(test) for test in tests]
    found = explain(replace(suite, tests=[*lessons, *tests]), results, errors=errors)
    return Diagnosis(suite, results, found, errors)
