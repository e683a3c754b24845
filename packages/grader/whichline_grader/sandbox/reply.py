"""Check the replies of a worker. A submission may have written every byte of them."""

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
from whichline_grader.sandbox.printable import hide_paths, printable

MAX_TEXT = 4_000
MAX_NAME = 200
MAX_ITEMS = 100  # in a reply, beyond those that the question accounts for
MAX_NUMBER = 1 << 31  # a line number: one with thousands of digits would fill a report


class WorkerStopped(Stopped):
    """A question got no usable reply, and the worker was killed."""


class TimedOut(WorkerStopped):
    """A call, or all calls of the submission together, exceeded the time limit."""


class LimitExceeded(WorkerStopped):
    """The worker exceeded its limit on memory, threads or bytes of reply."""


class WorkerDied(WorkerStopped):
    """The worker ended, or closed its channel, during a call."""


class ProtocolViolation(WorkerStopped):
    """The reply breaks the protocol: the submission tampered with the channel."""

    outcome = Outcome.VIOLATION


class NotAsked(WorkerStopped):
    """No right program leads to this call, so it was never sent to the worker."""


KINDS = {each.__name__: each for each in (TimedOut, LimitExceeded, WorkerDied, ProtocolViolation, NotAsked)}


@dataclass(frozen=True)
class Line:
    """A line in one of the student's files, and the name of the function around it."""

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
class Reply:
    """One checked reply, or the reason why there is none."""

    value: Any = None  # what the adapter returned, encoded: `frames.decode(value, outputs)` decodes it and cannot fail
    outputs: list[Tensor] = field(default_factory=list)  # the tensors in `value`, plain and contiguous
    differentiable: list[bool] = field(default_factory=list)  # whether each output required a gradient in the worker
    changed: list[Tensor | None] = field(default_factory=list)  # for each tensor sent, its new value if it changed
    gradients: list[Tensor | None] = field(default_factory=list)  # for each tensor sent that requires one
    failure: Failure | None = None  # the exception that the call raised, if any
    gradient_failure: Failure | None = None  # the exception that computing the gradients raised, if any
    missing: tuple[str, ...] = ()  # packages that the submission imported and the sandbox lacks
    forbidden: tuple[Use, ...] = ()  # the forbidden functions that the call ran
    stopped: WorkerStopped | None = None  # why there is no reply
    printed: tuple[str, str] = ("", "")  # the text on stdout and on stderr
    raw: tuple[bytes, bytes] = (b"", b"")  # header and body, unchecked

    @property
    def is_failed(self) -> bool:
        """Tell whether the adapter returned nothing."""
        return self.failure is not None or self.stopped is not None

    @cached_property
    def decoded(self) -> Any:
        """The value that the adapter returned."""
        return decode(self.value, self.outputs)


Number = Annotated[int, Meta(gt=-MAX_NUMBER, lt=MAX_NUMBER)]
Few = Meta(max_length=MAX_ITEMS)


class _Error(msgspec.Struct):
    """An exception as a worker reports it; each line is a file, a number and a function."""

    type: str
    message: str
    lines: Annotated[list[tuple[str, Number, str]], Few]

    def as_failure(self) -> Failure:
        lines = tuple(Line(_clean_name(file), number, _clean_name(function)) for file, number, function in self.lines)
        return Failure(_clean_text(self.type), _clean_text(self.message), lines)


class _Words(msgspec.Struct):
    """The text in a reply; each forbidden function comes with file and line."""

    error: _Error | None = None
    gradient_error: _Error | None = None
    missing: Annotated[list[str], Few] = []
    forbidden: Annotated[list[tuple[str, str, Number]], Few] = []


def check(raw: tuple[bytes, bytes], token: str, sent: Sequence[Tensor]) -> Reply:
    """Check the header and body of a reply to the question that had this token and these tensors, or FrameError."""
    header = parse_header(raw[0])
    if header.get("token") != token:
        raise FrameError("the answer does not have the token of its question")
    asking = [tensor for tensor in sent if tensor.requires_grad]
    most = MAX_ITEMS + 2 * len(sent) + len(asking)  # outputs, what was changed, gradients
    descriptions = _expect_items(header.get("tensors"), "tensors", most)
    tensors = unpack(descriptions, raw[1])
    outputs = tensors[: expect(int, header.get("outputs", 0), "a number of outputs")]
    decode(header.get("value"), outputs)
    gradients = _decode_tensors(header, "gradients", tensors, len(asking))
    for gradient, tensor in zip(gradients, asking, strict=True):
        if gradient is not None and (gradient.shape, gradient.dtype) != (tensor.shape, tensor.dtype):
            raise FrameError(f"expected a gradient of shape {tuple(tensor.shape)}, got {tuple(gradient.shape)}")
    try:
        words = msgspec.convert(header, _Words)
    except ValueError as error:
        raise FrameError(f"the answer is not as it should be: {error}") from None
    return Reply(
        value=header.get("value"),
        outputs=outputs,
        differentiable=[description.get("requires_grad") is True for description in descriptions[: len(outputs)]],
        changed=_decode_tensors(header, "changed", tensors, len(sent)),
        gradients=gradients,
        failure=words.error and words.error.as_failure(),
        gradient_failure=words.gradient_error and words.gradient_error.as_failure(),
        missing=tuple(map(_clean_name, words.missing)),
        forbidden=tuple(Use(_clean_name(file), number, _clean_name(name)) for name, file, number in words.forbidden),
        raw=raw,
    )


def _decode_tensors(header: dict[str, Any], key: str, tensors: list[Tensor], count: int) -> list[Tensor | None]:
    if key not in header:
        return [None] * count
    decoded = [decode(reference, tensors) for reference in _expect_items(header[key], key, count)]
    if len(decoded) != count or not all(item is None or isinstance(item, Tensor) for item in decoded):
        raise FrameError(f"expected {count} tensors or nulls as {key}")
    return decoded


def _expect_items(value: object, what: str, most: int) -> list[Any]:
    if len(items := expect(list, value, f"a list of {what}")) > most:
        raise FrameError(f"expected at most {most} {what}, got {len(items)}")
    return items


def _clean_text(text: str) -> str:
    return hide_paths(printable(text[:MAX_TEXT]))


def _clean_name(text: str) -> str:
    return _clean_text(text)[:MAX_NAME]
