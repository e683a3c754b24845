"""Describe why a test failed, with no other frames than the student's."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from whichline.engine.case import Case, CaseError
from whichline.engine.compare import WrongAnswer
from whichline.engine.errors import NotWrittenError, Stopped
from whichline.engine.exception_report import ExceptionReport
from whichline.engine.result import Check


@dataclass(frozen=True)
class Failure:
    """Why a test failed; each field is one of `Result`."""

    check: Check
    headline: str
    details: tuple[str, ...] = ()
    kind: str = ""
    place: str = ""
    raised: str = ""
    functions: tuple[tuple[str, str], ...] = ()


def describe(error: BaseException, root: Path, ours: bool = False) -> Failure:
    """Describe an exception that ended a test, or an import of the student's files; with `ours`, one of the engine."""
    try:
        failure = _describe(error, root)
    except Exception:  # the student's objects may do anything
        failure = Failure(Check.CALL, type(error).__name__, raised=type(error).__name__)
    if ours:
        why = f"this test cannot judge your answer: {failure.headline}; tell the staff of your course"
        return replace(failure, headline=why)
    return failure


def _describe(error: BaseException, root: Path) -> Failure:
    if isinstance(error, WrongAnswer):
        headline, *details = str(error).splitlines()
        return Failure(error.check, headline, tuple(details), error.kind)
    if isinstance(error, CaseError | Stopped):
        return Failure(Check.CALL, str(error))
    report = ExceptionReport(error, root)
    last = report.frames[-1] if report.frames else None
    if report.kind == NotWrittenError.__name__ and (not last or isinstance(error, NotWrittenError)):  # an adapter
        return Failure(Check.NOT_WRITTEN, f"not implemented yet: {report.text}")
    functions = tuple((frame.filename, frame.name) for frame in report.frames)
    # torch raises the same class for other reasons.
    if last and report.kind == "NotImplementedError" and (last.line or "").startswith("raise NotImplementedError"):
        what = f"not implemented yet: write {last.name} in {last.filename}:{last.lineno}"
        return Failure(Check.NOT_WRITTEN, what, functions=functions)
    if isinstance(error, AssertionError) and not last:  # the test has this assert
        return Failure(Check.PROPERTY, str(error).partition("\n")[0] or "an assert in the test fails")
    headline, details = report.full
    place = f"{last.filename}:{last.lineno}" if last else ""
    return Failure(Check.CALL, headline, tuple(details), place=place, raised=report.kind, functions=functions)


def shapes(case: Case, hidden: bool = False) -> tuple[str, ...]:
    """Describe a test case in one line for each input and for the output: shape and dtype, or value.

    A hidden test shows no values, except integers, which are sizes.
    """
    expected = f"{tuple(case.expected['answer'].shape)} {case.dtype}".replace("torch.", "")
    shown = {name: x for name, x in case.inputs.items() if not (hidden and isinstance(x, float))}
    rows = {**{name: _show_value(value) for name, value in shown.items()}, "expected": expected}
    width = max(map(len, rows))
    return f"the case is {case.name}:", *(f"  {name:<{width}}  {shown}" for name, shown in rows.items())


def _show_value(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_show_value(each)}' for key, each in value.items())}}}"
    return f"{tuple(value.shape)} {value.dtype}".replace("torch.", "") if isinstance(value, Tensor) else repr(value)
