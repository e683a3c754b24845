"""Advice: what is found in a submission's code, by a process of its own that earns nothing and is thrown away.

Every byte of it may have been written by the submission, to be read by its own student and by staff: what names a
problem, a test or a file must be one, and words are cut and made fit to be printed.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from cs336_kit.engine.finding import Finding
from cs336_kit.engine.result import Result
from cs336_staff.sandbox.confinement import Sandbox
from cs336_staff.sandbox.interview import Interview, Starved
from cs336_staff.sandbox.limits import Limits
from cs336_staff.sandbox.printable import printable
from cs336_staff.sandbox.submission import Submission

LIMITS = Limits(call_seconds=10, seconds=20)
MOST, MOST_LINES, LONGEST = 30, 24, 500  # findings, lines of one, characters in a line


def ask_for_advice(sandbox: Sandbox, submission: Submission, results: Sequence[Result]) -> tuple[Finding, ...]:
    """Findings about the problems of which a test failed; none if the submission gives no answer."""
    if sandbox.advisor is None:
        return ()
    tests = {result.test: result.problem for result in results if not result.passed}
    with Interview(sandbox.advisor, submission, LIMITS) as interview:
        try:
            answer = interview.ask_for("the advice", [result.as_json() for result in results])
        except Starved:
            return ()
    said = answer.value if isinstance(answer.value, list) else []
    return tuple(filter(None, (_read(each, submission.files, tests) for each in said[:MOST])))


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
