"""Frames: how values and tensors cross between the trusted side and a worker. Never pickle.

A frame is a prefix (bytes of header, bytes of body), a JSON header and a body. The header's `tensors` describes each
tensor; the body is their elements, one tensor after the other, contiguous and without padding. Wherever a value
stands in a header, `{"tensor": i}` stands for tensor i and `{"dict": {...}}` for a dictionary.

Both sides use this module. The trusted side reads with it what a submission may have written, so `unpack` and `decode`
trust nothing.
"""

import json
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

PREFIX = struct.Struct("<IQ")
MAX_HEADER_BYTES = 1 << 20
MAX_DIMENSIONS = 16
MAX_ELEMENTS = 1 << 40
MAX_DEPTH = 8
T = TypeVar("T")

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool)
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (*_FLOATS, *_INTEGERS)}


class FrameError(ValueError):
    """A frame does not have the format that this module describes."""


def pack(header: dict[str, Any], tensors: Sequence[Tensor] = (), tail: bytes = b"") -> bytes:
    """Pack `header`, the elements of `tensors`, and `tail` into a frame; FrameError if the header is too long.

    TypeError if a tensor is not a dense CPU tensor of one of `DTYPES`, or JSON cannot hold the header.
    """
    encoded = json.dumps(header | {"tensors": [_describe_tensor(tensor) for tensor in tensors]}).encode()
    if len(encoded) > MAX_HEADER_BYTES:
        raise FrameError(f"expected a header of at most {MAX_HEADER_BYTES} bytes, got {len(encoded)}")
    body = b"".join((*map(elements, tensors), tail))
    return PREFIX.pack(len(encoded), len(body)) + encoded + body


def extend(frame: bytes, more: dict[str, Any]) -> bytes:
    """Add fields, at least one, to the header of a frame."""
    header_bytes, body_bytes = PREFIX.unpack_from(frame)
    end = PREFIX.size + header_bytes
    header = frame[PREFIX.size : end - 1] + b", " + json.dumps(more).encode()[1:]
    return PREFIX.pack(len(header), body_bytes) + header + frame[end:]


def parse_header(encoded: bytes | bytearray) -> dict[str, Any]:
    """Parse a JSON object; raises FrameError if it is not one."""
    try:
        header = json.loads(encoded)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"expected a JSON header, got a {type(error).__name__}") from None
    return expect(dict, header, "a JSON object as header")


def unpack(descriptions: object, body: bytes | bytearray) -> list[Tensor]:
    """Unpack the tensors of a frame, each a plain contiguous CPU tensor in memory of its own.

    FrameError if a description is malformed, or the tensors do not fill the body exactly.
    """
    tensors, start = [], 0
    for description in expect(list, descriptions, "a list of tensors"):
        expect(dict, description, "a tensor's description")
        name = expect(str, description.get("dtype"), "a dtype")
        shape = expect(list, description.get("shape"), "a shape")
        if name not in DTYPES:
            raise FrameError(f"expected one of the dtypes {', '.join(DTYPES)}; got {name[:40]}")
        if len(shape) > MAX_DIMENSIONS or any(type(n) is not int or n < 0 for n in shape):
            raise FrameError(f"expected a shape of at most {MAX_DIMENSIONS} sizes, got {str(shape)[:100]}")
        if math.prod(max(n, 1) for n in shape) > MAX_ELEMENTS:
            raise FrameError(f"expected at most {MAX_ELEMENTS} elements, got the shape {str(shape)[:100]}")
        end = start + math.prod(shape) * DTYPES[name].itemsize
        if end > len(body):
            raise FrameError(f"expected a body of at least {end} bytes, got {len(body)}")
        tensors.append(_make_tensor(bytearray(memoryview(body)[start:end]), DTYPES[name], shape))
        start = end
    if start != len(body):
        raise FrameError(f"expected a body of {start} bytes, got {len(body)}")
    return tensors


def encode(value: object, tensors: list[Tensor]) -> Any:
    """Encode `value` for JSON, and append its tensors to `tensors`, each object once; TypeError if there is more."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Tensor):
        index = next((i for i, tensor in enumerate(tensors) if tensor is value), len(tensors))
        if index == len(tensors):
            tensors.append(value)
        return {"tensor": index}
    if isinstance(value, list | tuple):
        return [encode(item, tensors) for item in value]
    if isinstance(value, dict) and all(type(key) is str for key in value):
        return {"dict": {key: encode(item, tensors) for key, item in value.items()}}
    raise TypeError(f"expected a torch.Tensor, got {type(value).__module__}.{type(value).__qualname__}")


def decode(value: object, tensors: list[Tensor], depth: int = 0) -> Any:
    """Reverse `encode`; tuples become lists. FrameError if it cannot have given `value`, or that is nested too deep."""
    if depth > MAX_DEPTH:
        raise FrameError(f"expected values nested at most {MAX_DEPTH} deep")
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list():
            return [decode(item, tensors, depth + 1) for item in value]
        case {"tensor": int(index), **rest} if not rest and type(index) is int and 0 <= index < len(tensors):
            return tensors[index]
        case {"dict": dict(items), **rest} if not rest:
            return {key: decode(item, tensors, depth + 1) for key, item in items.items()}
    raise FrameError(f"expected a value, got {str(value)[:100]}")


def apply(function: Callable[..., T], arguments: Sequence[object], names: Sequence[str]) -> T:
    positional = len(arguments) - len(names)
    return function(*arguments[:positional], **dict(zip(names, arguments[positional:], strict=True)))


def elements(tensor: Tensor) -> bytes:
    """The elements of `tensor` in row-major order."""
    plain = tensor.detach().resolve_neg()
    if plain.dtype == torch.bfloat16:  # numpy has no bfloat16
        plain = plain.view(torch.int16)
    return plain.numpy().tobytes()


def expect(kind: type[T], value: object, what: str) -> T:
    if type(value) is not kind:
        raise FrameError(f"expected {what}, got {str(value)[:100]}")
    return value


def _describe_tensor(tensor: Tensor) -> dict[str, Any]:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or dtype not in DTYPES:
        kind = f"a tensor of dtype {dtype}, {tensor.layout}, on device {tensor.device}"
        raise TypeError(f"expected a dense CPU tensor of {', '.join(DTYPES)}; got {kind}")
    shape, strides = list(tensor.shape), list(tensor.stride())
    return {"dtype": dtype, "shape": shape, "strides": strides, "requires_grad": tensor.requires_grad}


def _make_tensor(data: bytearray, dtype: torch.dtype, shape: list[int]) -> Tensor:
    if not data:
        return torch.empty(shape, dtype=dtype)
    if dtype == torch.bool:  # a byte other than 0 and 1 is no boolean
        return torch.frombuffer(data, dtype=torch.uint8).reshape(shape) != 0
    return torch.frombuffer(data, dtype=dtype).reshape(shape)
