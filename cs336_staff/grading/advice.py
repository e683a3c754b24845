"""Advice: what is found in a submission's code, by a process of its own that earns nothing and is thrown away.

Every byte of it may have been written by the submission, to be read by its own student and by staff: what names a
problem, a test or a file must be one, and words are cut and made fit to be printed.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

from cs336_kit.engine.case import Case
from cs336_kit.engine.finding import Finding
from cs336_kit.engine.result import Result
from cs336_kit.engine.suite import Test
from cs336_staff.authoring.room import load_rooms
from cs336_staff.authoring.stored_cases import make_case, public_seed
from cs336_staff.grading.questions import Recorded, ask, write_questions
from cs336_staff.grading.suite import GradedSuite
from cs336_staff.hidden.drawn import EXAMPLES, DrawnCases
from cs336_staff.hidden.kinds import Spread
from cs336_staff.sandbox.confinement import Sandbox
from cs336_staff.sandbox.interview import Interview, Starved
from cs336_staff.sandbox.limits import Limits
from cs336_staff.sandbox.printable import printable
from cs336_staff.sandbox.submission import Submission

MOST_DRAWN = 6
LIMITS = Limits(call_seconds=10, seconds=20)
MOST, MOST_LINES, LONGEST = 30, 24, 500  # findings, lines of one, characters in a line


def ask_for_advice(
    sandbox: Sandbox, submission: Submission, results: Sequence[Result], drawn: Sequence[tuple[Result, Case]] = ()
) -> tuple[Finding, ...]:
    """Findings about the problems of which a test failed; none if the submission gives no answer.

    Args:
        sandbox: where it is asked, with an advisor.
        submission: who is asked.
        results: of the public tests.
        drawn: further cases, and what became of the tests on them.
    """
    if sandbox.advisor is None:
        return ()
    every = [*results, *(result for result, _ in drawn)]
    tests = {result.test: result.problem for result in every if not result.passed}
    cases = [
        {field.name: getattr(case, field.name) for field in fields(case) if field.name != "original"}
        for _, case in drawn
    ]
    with Interview(sandbox.advisor, submission, LIMITS) as interview:
        try:
            answer = interview.ask_for("the advice", [result.as_json() for result in every], cases)
        except Starved:
            return ()
    said = answer.value if isinstance(answer.value, list) else []
    return tuple(filter(None, (_read(each, submission.files, tests) for each in said[:MOST])))


def draw_anew(
    graded: GradedSuite, sandbox: Sandbox, submission: Submission, results: Sequence[Result]
) -> list[tuple[Result, Case]]:
    """Cases that fail, like those of hidden tests that fail in problems whose public tests pass.

    They are drawn from no secret, so that all about them may be told.
    """
    told = {result.problem for result in results if not result.hidden and not result.passed}
    failed = {result.test for result in results if result.hidden and result.is_wrong and result.problem not in told}
    tests = [test for test in graded.suite.tests if test.name in failed and not test.memory]
    found: list[tuple[Result, Case]] = []
    with Interview(sandbox, submission, graded.course.limits) as interview:
        for test in tests:
            for case in _draw(test) if len(found) < MOST_DRAWN else ():
                new = graded.suite.make_test(test.name, test.problem, case)
                questions = write_questions(graded.proxy, new.name, partial(graded.suite.run, new))
                result = graded.run(new, Recorded(questions, ask(interview, questions), submission))
                if result.is_wrong:
                    found.append((result, case))
                    break
    return found


def _draw(test: Test) -> list[Case]:
    """Cases like those of a hidden test."""
    if isinstance(test.drawn, DrawnCases):
        specs = [test.drawn.draw(Spread(public_seed(test.name), turn)) for turn in range(EXAMPLES)]
    else:
        names = {case.name for case in test.cases()}
        specs = [spec for room in load_rooms().values() for spec in room.hidden if spec.name in names]
    return [make_case(spec, public_seed(f"{test.name} {number}")) for number, spec in enumerate(specs)]


def _read(written: Any, files: Collection[str], tests: dict[str, str]) -> Finding | None:
    """The finding that a worker wrote, if it is one."""
    try:
        told = Finding.from_json(written)
        is_place = type(told.line) is int and (not told.file or told.file in files)
        if not is_place or not set(told.tests) <= {name for name, problem in tests.items() if problem == told.problem}:
            return None
        return replace(
            told,
            id=_cut(told.id),
            function=_cut(told.function),
            said=_cut_all(told.said),
            code=_cut_all(told.code),
            proof=_cut(told.proof),
            question=_cut(told.question),
            section=_cut(told.section),
            likewise=tuple(int(line) for line in told.likewise[:MOST_LINES]),
            columns=(int(told.columns[0]), int(told.columns[1])),
        )
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return None


def _cut_all(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(_cut(line) for line in [*lines][:MOST_LINES])


def _cut(text: str) -> str:
    return printable(text.replace("\n", " ")[:LONGEST])
