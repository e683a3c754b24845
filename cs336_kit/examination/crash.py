"""The smallest call that the student's function cannot make: it raises, or the answer has another shape.

A problem gives one usual call and variations of it, each of which changes one thing. What one thing breaks the call is
then known, whatever line it breaks in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from cs336_kit.engine.case import Case
from cs336_kit.engine.failure import StudentRaised
from cs336_kit.examination.experiment import Ask, Finding, NoAnswerError

WHAT_COMES_BACK = "What does your function return, and what does the handout say that it returns?"
LONGEST_MESSAGE = 160
MOST_NAMED = 2  # of the calls that break in one place


class Call(Protocol):
    """The arguments of a call and the shape of its answer; a problem's own has sizes that a variation replaces."""

    @property
    def arguments(self) -> tuple[Any, ...]: ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the answer should have."""
        ...


C = TypeVar("C", bound=Call)


@dataclass(frozen=True)
class Variation(Generic[C]):
    """A call that differs from the usual one in one thing.

    Args:
        id: its name in findings, "without-mask".
        words: the same in a sentence, "without a mask".
        of: makes it of another call.
        question: what a tutor asks when it breaks.
        touches: whether a test on this case makes such a call.
    """

    id: str
    words: str
    of: Callable[[C], C]
    question: str
    touches: Callable[[Case], bool] = lambda case: True


@dataclass
class Calls(Generic[C]):
    """The outcome of the calls.

    Args:
        works: a call that works: the usual one, or the first variation that does; None where nothing works.
        findings: what does not work.
        failed: the ids of the variations that do not.
        broken: for the id of a finding, the calls that it is about.
    """

    works: C | None
    findings: list[Finding]
    failed: set[str] = field(default_factory=set)
    broken: dict[str, list[C]] = field(default_factory=dict)


def try_calls(
    ask: Ask, problem: str, section: str, usual: C, words: str, variations: Sequence[Variation[C]]
) -> Calls[C]:
    """Make the usual call, which is called `words` in a sentence, and its variations.

    Code that is not written yet is not a finding.
    """
    error = _failure(ask, usual)
    if error and isinstance(error.__cause__, NotImplementedError):
        return Calls(None, [])
    findings = []
    if error:
        working = next((each for each in variations if _failure(ask, each.of(usual)) is None), None)
        if working is None:
            measured = f"Your function fails {words}, and in every other call that was tried: {_quoted(error)}."
            question = "Which line raises, and which shapes meet there?" if error.__cause__ else WHAT_COMES_BACK
            return Calls(None, [Finding(f"{problem}-fails", measured, "", question, section, error=error.__cause__)])
        measured = f"Your function fails {words}: {_quoted(error)}. The same call {working.words} works."
        id = f"{problem}-fails-unless-{working.id}"
        question = f"Which line raises, and what does it take for granted that holds only {working.words}?"
        findings.append(Finding(id, measured, "", question, section, error=error.__cause__))
        usual, words = working.of(usual), working.words
    broken = [(each, e) for each in variations if (e := _failure(ask, each.of(usual)))]
    calls = Calls(usual, findings, {each.id for each, _ in broken})
    same_place: dict[object, list[tuple[Variation[C], NoAnswerError]]] = {}
    for each, e in broken:
        if error and _place(e) == _place(error):
            continue  # the same once more
        same_place.setdefault(_place(e), []).append((each, e))
    for group in same_place.values():
        first, e = group[0]
        if e.__cause__:
            what = " and ".join(each.words for each, _ in group[:MOST_NAMED])
            measured = f"Your function works {words} and fails {what}: {_quoted(e)}."
        else:
            measured = f"Your answer has the right shape {words}; {first.words} {e}."
        id = f"{problem}-{'fails' if e.__cause__ else 'shape'}-{first.id}"
        touches = partial(_any_touches, [each for each, _ in group])
        findings.append(Finding(id, measured, "", first.question, section, touches, e.__cause__))
        calls.broken[id] = [each.of(usual) for each, _ in group]
    return calls


def _failure(ask: Ask, call: Call) -> NoAnswerError | None:
    try:
        ask.tensor(call.shape, *call.arguments)
    except NoAnswerError as error:
        return error
    return None


def _any_touches(variations: Sequence[Variation[Any]], case: Case) -> bool:
    return any(each.touches(case) for each in variations)


def _place(error: NoAnswerError) -> object:
    """The line that raised: variations that break in the same one have the same cause."""
    if isinstance(error.__cause__, StudentRaised):
        return error.__cause__.frames and (error.__cause__.frames[-1].filename, error.__cause__.frames[-1].lineno)
    trace = error.__cause__ and error.__cause__.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    return trace and (trace.tb_frame.f_code.co_filename, trace.tb_lineno)


def _quoted(error: NoAnswerError) -> str:
    message = str(error).partition("\n")[0]
    if len(message) > LONGEST_MESSAGE:
        message = message[:LONGEST_MESSAGE] + "…"
    return f"`{message}`" if error.__cause__ else message
