"""The answers of a worker, checked. Every byte of it may have been written by a submission."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from cs336_kit.rules.watch import Use
from cs336_staff.sandbox.inside.frames import FrameError, decode, expect, unpack
from cs336_staff.sandbox.printable import printable

MAX_TEXT = 4_000
MAX_NAME = 200
MAX_ITEMS = 100


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
class Reply:
    """One checked reply.

    Attributes:
        value: what the adapter returned, encoded: `frames.decode(value, outputs)` decodes it and cannot fail.
        outputs: the tensors in `value`, plain and contiguous.
        differentiable: for each of them, whether the worker's own required a gradient.
        changed: for each tensor that was sent, None or what the call made of it.
        gradients: for each tensor that was sent and required one, its gradient or None.
        failure: the exception, when the call raised one.
        missing: packages that the submission imported and the sandbox lacks.
        forbidden: what the call ran of what students must write themselves.
    """

    value: Any
    outputs: list[Tensor]
    differentiable: list[bool]
    changed: list[Tensor | None]
    gradients: list[Tensor | None]
    failure: Failure | None
    missing: tuple[str, ...]
    forbidden: tuple[Use, ...]


def check(header: dict[str, Any], body: bytes | bytearray, request: dict[str, Any], sent: list[Tensor]) -> Reply:
    """The reply to `request`, which went out with the tensors `sent`.

    Raises:
        FrameError: it is malformed, or answers another request.
    """
    sequence = expect(int, header.get("sequence"), "a sequence number")
    if sequence != request["sequence"]:
        raise FrameError(f"expected the reply to request {request['sequence']}, got one to {sequence}")
    descriptions = _items(header.get("tensors"), "tensors")
    tensors = unpack(descriptions, body)
    outputs = tensors[: expect(int, header.get("outputs", 0), "a number of outputs")]
    decode(header.get("value"), outputs)
    asking = [tensor for tensor in sent if tensor.requires_grad] if "cotangents" in request else []
    gradients = _tensors(header, "gradients", tensors, len(asking))
    for gradient, tensor in zip(gradients, asking, strict=True):
        if gradient is not None and (gradient.shape, gradient.dtype) != (tensor.shape, tensor.dtype):
            raise FrameError(f"expected a gradient of shape {tuple(tensor.shape)}, got {tuple(gradient.shape)}")
    return Reply(
        value=header.get("value"),
        outputs=outputs,
        differentiable=[description.get("requires_grad") is True for description in descriptions[: len(outputs)]],
        changed=_tensors(header, "changed", tensors, len(sent)),
        gradients=gradients,
        failure=_failure(header["error"]) if "error" in header else None,
        missing=tuple(_name(name) for name in _items(header.get("missing", []), "missing packages")),
        forbidden=tuple(_forbidden(call) for call in _items(header.get("forbidden", []), "forbidden calls")),
    )


def _failure(error: object) -> Failure:
    error = expect(dict, error, "an error")
    lines = tuple(_line(line) for line in _items(error.get("lines"), "lines"))
    return Failure(_text(error.get("type")), _text(error.get("message")), lines)


def _line(line: object) -> Line:
    match line:
        case [file, int(number), function]:
            return Line(_name(file), number, _name(function))
    raise FrameError(f"expected [file, line, function], got {str(line)[:100]}")


def _forbidden(call: object) -> Use:
    match call:
        case [name, file, int(number)]:
            return Use(_name(file), number, _name(name))
    raise FrameError(f"expected [name, file, line], got {str(call)[:100]}")


def _tensors(header: dict[str, Any], key: str, tensors: list[Tensor], count: int) -> list[Tensor | None]:
    if key not in header:
        return [None] * count
    decoded = [decode(reference, tensors) for reference in _items(header[key], key)]
    if len(decoded) != count or not all(item is None or isinstance(item, Tensor) for item in decoded):
        raise FrameError(f"expected {count} tensors or nulls as {key}")
    return decoded


def _items(value: object, what: str) -> list[Any]:
    items = expect(list, value, f"a list of {what}")
    if len(items) > MAX_ITEMS:
        raise FrameError(f"expected at most {MAX_ITEMS} {what}, got {len(items)}")
    return items


def _text(value: object) -> str:
    return printable(expect(str, value, "a text")[:MAX_TEXT])


def _name(value: object) -> str:
    return _text(value)[:MAX_NAME]
