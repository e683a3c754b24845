"""The calls of a function, whatever it computes: those that get an answer, and those that break.

A problem gives one usual call and variations of it, each of which changes one thing. What one thing breaks the call is
then known, whatever line it breaks in.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import torch

from cs336_kit.engine.case import Case
from cs336_kit.engine.compare import dtype_name
from cs336_kit.engine.failure import StudentRaised
from cs336_kit.examination.experiment import Ask, Finding, NoAnswerError

WHAT_COMES_BACK = "What does your function return, and what does the handout say that it returns?"
NOT_BROADCAST = r"IndexError: The shape of the mask .* does not match the shape of the indexed tensor"
# What to ask about an error, whatever call raises it.
ASKED_OF = (
    (
        r"(ValueError|AssertionError)(?!.*(unpack|broadcast|not in (list|tuple)))",
        "Is this a check of your own? Does the handout demand it of this call?",
    ),
    (
        r"RuntimeError: view size is not compatible",
        "How does a transposed tensor lie in memory, and what does view need that reshape does not?",
    ),
    (
        NOT_BROADCAST,
        "Which shape has the mask here, and which shape what it indexes? Which operations broadcast a mask?",
    ),
)
# What to ask about another one when no call works.
QUESTIONS = (
    (r"(Syntax|Indentation|Tab)Error", ""),
    (r"(ModuleNotFound|Import)Error", "Which file or package should define that name, and how is it spelt there?"),
    (r".*state_dict", "What are your module's parameters called, and what does your adapter call them?"),
    (r".*returned None", WHAT_COMES_BACK),
    (r"TypeError.*argument", "Which arguments does the `def` name, and which does the call pass?"),
    (r".*(shape|size|dimension|axis|axes)", "Which line raises, and which shapes meet there?"),
    ("", "Which line raises, and what does it take for granted?"),
)
LONGEST_MESSAGE = 160
MOST_NAMED = 2  # of the calls that break in one place
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Call(Protocol):
    """The arguments of a call and the shape of its answer; a problem's own is a dataclass of sizes."""

    __dataclass_fields__: ClassVar[dict[str, Any]]  # `replace` takes it for a dataclass

    @property
    def arguments(self) -> tuple[Any, ...]: ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the answer should have."""
        ...


C = TypeVar("C", bound=Call)


@dataclass(frozen=True)
class Variation:
    """A call that differs from the usual one in one thing.

    Args:
        id: its name in findings, "without-mask".
        words: the same in a sentence, "without a mask".
        sizes: those of the call that it changes, by name.
        question: what a tutor asks when it breaks.
        touches: whether a test on this case makes such a call.
    """

    id: str
    words: str
    sizes: Mapping[str, Any]
    question: str
    touches: Callable[[Case], bool] = lambda case: True

    def failure(self, ask: Ask, usual: Call) -> NoAnswerError | None:
        return _failure(ask, replace(usual, **self.sizes))


def in_other_dtypes(question: str) -> Iterator[Variation]:
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        name = dtype_name(dtype)
        yield Variation(name, f"in {name}", {"dtype": dtype}, question, has_dtype(dtype))


def has_dtype(*dtypes: torch.dtype) -> Callable[[Case], bool]:
    return lambda case: case.dtype in dtypes


@dataclass
class Calls(Generic[C]):
    """The outcome of the calls.

    Args:
        usual: a call that works: the usual one, or the first variation that does; the usual one where nothing works.
        works: whether anything does.
        findings: what does not work.
        failed: by the ids of the variations that do not, how they fail.
        broken: for the id of a finding, the calls that it is about.
    """

    usual: C
    works: bool
    findings: list[Finding]
    failed: dict[str, NoAnswerError] = field(default_factory=dict)
    broken: dict[str, list[C]] = field(default_factory=dict)

    def count_same_words(self, other: "Calls[Any]") -> int | None:
        """Count the calls that fail with the same words; None if not the same calls fail, each in the same way."""
        if self.failed.keys() != other.failed.keys():
            return None
        pairs = [(error, other.failed[id]) for id, error in self.failed.items()]
        return sum(_text(x) == _text(y) for x, y in pairs) if all(_fails_like(x, y) for x, y in pairs) else None


def try_calls(ask: Ask, usual: C, words: str, variations: Sequence[Variation]) -> Calls[C]:
    """Make the usual call, which is called `words` in a sentence, and its variations.

    Code that is not written yet is not a finding.
    """
    error = _failure(ask, usual)
    if error and isinstance(error.__cause__, NotImplementedError):
        return Calls(usual, False, [])
    findings = []
    failed = _failures(ask, usual, variations)
    if error:
        broken = {each.id for each, _ in failed}
        working = next((each for each in variations if each.id not in broken), None)
        if working is None:
            measured = f"Your function fails {words}, and in every other call that was tried: {quoted(error)}."
            if other := next(((each, e) for each, e in failed if _text(e) != _text(error)), None):
                measured = (
                    f"Your function fails {words}: {quoted(error)}. Every other call that was tried fails, too, but "
                    f"differently {other[0].words}: {quoted(other[1])}."
                )
            all_failed = {each.id: e for each, e in failed}
            return Calls(usual, False, [_crash("fails", measured, error, _question(error))], all_failed)
        measured = f"Your function fails {words}: {quoted(error)}. The same call {working.words} works."
        question = "Which line raises, and what in it is different in these two calls?"
        findings.append(_crash(f"fails-unless-{working.id}", measured, error, question))
        usual, words = replace(usual, **working.sizes), working.words
        failed = _failures(ask, usual, variations)
    calls = Calls(usual, True, findings, {each.id: e for each, e in failed})
    same_place: dict[object, list[tuple[Variation, NoAnswerError]]] = {}
    for each, e in failed:
        if error and _place(e) == _place(error):
            continue  # the same once more
        same_place.setdefault(_place(e), []).append((each, e))
    for group in same_place.values():
        first, e = group[0]
        if e.__cause__:
            measured = f"Your function works {words} and fails {_named(group)}."
        else:
            measured = f"Your answer has the right shape {words}; {first.words} {e}."
        id = f"{'fails' if e.__cause__ else 'shape'}-{first.id}"
        touches = partial(_any_touches, [each for each, _ in group])
        findings.append(_crash(id, measured, e, first.question, touches))
        calls.broken[id] = [replace(usual, **each.sizes) for each, _ in group]
    return calls


def _failures(ask: Ask, usual: Call, variations: Sequence[Variation]) -> list[tuple[Variation, NoAnswerError]]:
    return [(each, error) for each in variations if (error := each.failure(ask, usual))]


def _crash(
    id: str, measured: str, error: NoAnswerError, question: str, touches: Callable[[Case], bool] = lambda case: True
) -> Finding:
    means = "`x[mask]` does not broadcast the mask: it must have the shape of x, or of its first axes."
    question = next((asks for pattern, asks in ASKED_OF if re.match(pattern, str(error), re.DOTALL)), question)
    return Finding(id, measured, means * bool(re.match(NOT_BROADCAST, str(error))), question, touches, error.__cause__)


def _question(error: NoAnswerError) -> str:
    """A question that fits the error, or asks what comes back where nothing was raised."""
    if error.__cause__ is None:
        return WHAT_COMES_BACK
    return next(question for pattern, question in QUESTIONS if re.match(pattern, str(error), re.DOTALL))


def _named(group: Sequence[tuple[Variation, NoAnswerError]]) -> str:
    """The first calls of a group, each with its own error, unless they have the same."""
    calls: dict[str, list[tuple[Variation, NoAnswerError]]] = {}
    for each, error in group[:MOST_NAMED]:
        calls.setdefault(_text(error), []).append((each, error))
    return ", and ".join(
        f"{' and '.join(each.words for each, _ in same)}: {quoted(same[0][1])}" for same in calls.values()
    )


def _fails_like(one: NoAnswerError, other: NoAnswerError) -> bool:
    """Tell whether two calls fail in the same way: by an answer of the same shape, or an error of the same type.

    Where both errors are about sizes that do not fit each other, these are the same, too.
    """
    if not (one.__cause__ and other.__cause__):
        return str(one) == str(other)
    (type, *sizes), (other_type, *other_sizes) = (
        (str(error).partition(":")[0], *sorted(re.findall(r"tensor [ab] \((\d+)\)", str(error))))
        for error in (one, other)
    )
    return type == other_type and (sizes == other_sizes or not (sizes and other_sizes))


def _text(error: NoAnswerError) -> str:
    """Its words alone: sizes may differ."""
    return re.sub(r"[^A-Za-z]+", " ", str(error))


def _failure(ask: Ask, call: Call) -> NoAnswerError | None:
    try:
        ask.tensor(call.shape, *call.arguments)
    except NoAnswerError as error:
        return error
    return None


def _any_touches(variations: Sequence[Variation], case: Case) -> bool:
    return any(each.touches(case) for each in variations)


def _place(error: NoAnswerError) -> object:
    """The line that raised: variations that break in the same one have the same cause."""
    if isinstance(error.__cause__, StudentRaised):
        frames = error.__cause__.frames
        return (frames[-1].filename, frames[-1].lineno) if frames else _text(error)
    trace = error.__cause__ and error.__cause__.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    return trace and (trace.tb_frame.f_code.co_filename, trace.tb_lineno)


def quoted(error: NoAnswerError) -> str:
    return f"`{cut_message(str(error))}`" if error.__cause__ else cut_message(str(error))


def cut_message(message: str) -> str:
    """The first line, without what torch advises; shorter, if it is long."""
    line = message.partition("\n")[0].partition(" Hint: ")[0].removesuffix(".")
    return f"{line[:LONGEST_MESSAGE]}…" if len(line) > LONGEST_MESSAGE else line
