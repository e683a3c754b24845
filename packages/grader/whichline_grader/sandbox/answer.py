"""The answers of a worker, checked. Every byte of it may have been written by a submission."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from torch import Tensor

from whichline.engine.errors import Stopped
from whichline.engine.result import Outcome
from whichline.rules.watch import Use
from whichline_grader.sandbox.inside.frames import FrameError, decode, expect, parse_header, unpack
from whichline_grader.sandbox.printable import hide_places, printable

MAX_TEXT = 4_000
MAX_NAME = 200
MAX_ITEMS = 100  # of an answer, and besides as many as were sent
MAX_NUMBER = 1 << 31  # of a line: one of thousands of digits would fill a report


class WorkerStopped(Stopped):
    """A question got no answer that can be used, and the worker was killed."""


class TimedOut(WorkerStopped):
    """A call, or the submission as a whole, took more of its own time than it may."""


class LimitExceeded(WorkerStopped):
    """More memory, threads or bytes of reply than allowed."""


class WorkerDied(WorkerStopped):
    """The process ended, or closed its channel, during a call."""


class ProtocolViolation(WorkerStopped):
    """The worker wrote what no worker writes: the submission has meddled with the channel."""

    outcome = Outcome.VIOLATION


class NotAsked(WorkerStopped):
    """The call is not one that a right program leads to, so it was not asked and has no answer."""


KINDS = {each.__name__: each for each in (TimedOut, LimitExceeded, WorkerDied, ProtocolViolation, NotAsked)}


@dataclass(frozen=True)
class Line:
    """A line in one of the student's files. `function` is the one it stands in."""

    file: str
    number: int
    function: str


@dataclass(frozen=True)
class Failure:
    """An exception in the student's code, the innermost line last."""

    type: str
    message: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Answer:
    """One checked answer, or why a question has no answer.

    Attributes:
        value: what the adapter returned, encoded: `frames.decode(value, outputs)` decodes it and cannot fail.
        outputs: the tensors in `value`, plain and contiguous.
        differentiable: for each of them, whether the worker's own required a gradient.
        changed: for each tensor that was sent, None or what the call made of it.
        gradients: for each tensor that was sent and required one, its gradient or None.
        failure: the exception, when the call raised one.
        gradient_failure: the same, when the gradients did.
        missing: packages that the submission imported and the sandbox lacks.
        forbidden: what the call ran of what students must write themselves.
        stopped: why it has none of these.
        printed: on stdout and on stderr.
        raw: header and body, as they came.
    """

    value: Any = None
    outputs: list[Tensor] = field(default_factory=list)
    differentiable: list[bool] = field(default_factory=list)
    changed: list[Tensor | None] = field(default_factory=list)
    gradients: list[Tensor | None] = field(default_factory=list)
    failure: Failure | None = None
    gradient_failure: Failure | None = None
    missing: tuple[str, ...] = ()
    forbidden: tuple[Use, ...] = ()
    stopped: WorkerStopped | None = None
    printed: tuple[str, str] = ("", "")
    raw: tuple[bytes, bytes] = (b"", b"")

    @property
    def is_failed(self) -> bool:
        """Tell whether nothing was returned."""
        return self.failure is not None or self.stopped is not None

    @cached_property
    def decoded(self) -> Any:
        """The value that the adapter returned."""
        return decode(self.value, self.outputs)


Number = Annotated[int, Meta(gt=-MAX_NUMBER, lt=MAX_NUMBER)]
Few = Meta(max_length=MAX_ITEMS)


class _Error(msgspec.Struct):
    """An exception, as a worker tells of it, with file, line and function of each of its lines."""

    type: str
    message: str
    lines: Annotated[list[tuple[str, Number, str]], Few]

    def as_failure(self) -> Failure:
        lines = tuple(Line(_name(file), number, _name(function)) for file, number, function in self.lines)
        return Failure(_text(self.type), _text(self.message), lines)


class _Words(msgspec.Struct):
    """The words in an answer; the forbidden functions that ran come with file and line."""

    error: _Error | None = None
    gradient_error: _Error | None = None
    missing: Annotated[list[str], Few] = []
    forbidden: Annotated[list[tuple[str, str, Number]], Few] = []


def check(raw: tuple[bytes, bytes], token: str, sent: Sequence[Tensor]) -> Answer:
    """The answer in a header and a body, to a question that went out with this token and these tensors.

    Raises:
        FrameError: it is malformed, or answers another question.
    """
    header = parse_header(raw[0])
    if header.get("token") != token:
        raise FrameError("the answer does not have the token of its question")
    asking = [tensor for tensor in sent if tensor.requires_grad]
    most = MAX_ITEMS + 2 * len(sent) + len(asking)  # outputs, what was changed, gradients
    descriptions = _items(header.get("tensors"), "tensors", most)
    tensors = unpack(descriptions, raw[1])
    outputs = tensors[: expect(int, header.get("outputs", 0), "a number of outputs")]
    decode(header.get("value"), outputs)
    gradients = _tensors(header, "gradients", tensors, len(asking))
    for gradient, tensor in zip(gradients, asking, strict=True):
        if gradient is not None and (gradient.shape, gradient.dtype) != (tensor.shape, tensor.dtype):
            raise FrameError(f"expected a gradient of shape {tuple(tensor.shape)}, got {tuple(gradient.shape)}")
    try:
        words = msgspec.convert(header, _Words)
    except ValueError as error:
        raise FrameError(f"the answer is not as it should be: {error}") from None
    return Answer(
        value=header.get("value"),
        outputs=outputs,
        differentiable=[description.get("requires_grad") is True for description in descriptions[: len(outputs)]],
        changed=_tensors(header, "changed", tensors, len(sent)),
        gradients=gradients,
        failure=words.error and words.error.as_failure(),
        gradient_failure=words.gradient_error and words.gradient_error.as_failure(),
        missing=tuple(map(_name, words.missing)),
        forbidden=tuple(Use(_name(file), number, _name(name)) for name, file, number in words.forbidden),
        raw=raw,
    )


def _tensors(header: dict[str, Any], key: str, tensors: list[Tensor], count: int) -> list[Tensor | None]:
    if key not in header:
        return [None] * count
    decoded = [decode(reference, tensors) for reference in _items(header[key], key, count)]
    if len(decoded) != count or not all(item is None or isinstance(item, Tensor) for item in decoded):
        raise FrameError(f"expected {count} tensors or nulls as {key}")
    return decoded


def _items(value: object, what: str, most: int = MAX_ITEMS) -> list[Any]:
    items = expect(list, value, f"a list of {what}")
    if len(items) > most:
        raise FrameError(f"expected at most {most} {what}, got {len(items)}")
    return items


def _text(text: str) -> str:
    return hide_places(printable(text[:MAX_TEXT]))


def _name(text: str) -> str:
    return _text(text)[:MAX_NAME]
