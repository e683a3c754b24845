"""Serve one submission: import it, then answer calls of its adapters until the trusted side closes the channel.

Whatever the submission does in here, to this code or to the channel, can only change its own answers: no expected
value is ever on this side.
"""

import importlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from inspect import unwrap
from itertools import chain, repeat
from traceback import walk_tb
from typing import Any

import torch
from torch import Tensor

from whichline.rules.pairing import Lesson, Source
from whichline.rules.watch import Watch, import_what_it_names
from whichline_grader.sandbox.inside import frames, importing
from whichline_grader.sandbox.inside.lent import Ask, find_named, lend
from whichline_grader.sandbox.inside.randomness import seed

MAX_TEXT = 4_000
MAX_LINES = 30
CHUNK = 1 << 20
# Called with adapters, their files, results and cases; gives findings, and errors of the search.
Advise = Callable[..., tuple[list[str], list[str]]]


class NotWrittenError(Exception):
    """An adapter does not exist. (torch raises a `NotImplementedError` for a dtype that it does not take.)"""


def serve(channel: int, watch: Watch, advise: Advise | None = None) -> None:
    """Answer the frames that arrive on the file descriptor `channel`; the first one brings the submission."""
    adapters: Any = None
    files: dict[str, bytes] = {}
    tokens: list[str] = []
    for header, body in _requests(channel):
        tokens[:] = [header["token"]]
        tensors: list[Tensor] = []
        try:
            seed(header.get("seeds", (0, 0, 0)))
            reply: dict[str, Any] = {}
            if "files" in header:
                files = _files(header["files"], body)
                importing.install(files)
                adapters = importlib.import_module(header["adapters"])
            elif advise:
                sent = frames.unpack(header["tensors"], body)
                reply = {"value": advise(adapters, files, *(frames.decode(each, sent) for each in header["arguments"]))}
            elif "lesson" in header:
                reply = {"value": _learn(adapters, header, body, partial(_borrow, channel, tokens))}
            else:
                reply = _call(adapters, header, body, tensors, watch)
            frame = frames.pack(_annotated(reply, header, watch), tensors)
        except BaseException as error:  # whatever a submission raises is an answer
            frame = frames.pack(_annotated({"error": _described(error)}, header, watch))
        send(channel, frame)


def send(channel: int, frame: bytes) -> None:
    rest = memoryview(frame)
    while rest:
        rest = rest[os.write(channel, rest) :]


def _requests(channel: int) -> Iterator[tuple[dict[str, Any], bytearray]]:
    """Header and body of each frame that comes, until the other end is closed."""
    while prefix := _read(channel, frames.PREFIX.size):
        header_bytes, body_bytes = frames.PREFIX.unpack(prefix)
        yield frames.parse_header(_read(channel, header_bytes)), _read(channel, body_bytes)


def _read(channel: int, size: int) -> bytearray:
    """So many bytes; fewer if the other end is closed."""
    data = bytearray()
    while len(data) < size and (chunk := os.read(channel, min(size - len(data), CHUNK))):
        data += chunk
    return data


def _files(sizes: dict[str, int], body: bytearray) -> dict[str, bytes]:
    files, start = {}, 0
    for path, size in sizes.items():
        files[path] = bytes(body[start : start + size])
        start += size
    return files


def _call(adapters: Any, header: dict[str, Any], body: bytearray, out: list[Tensor], watch: Watch) -> dict[str, Any]:
    """Call an adapter, put the tensors of the reply into `out` and return the rest of it.

    The reply has what the adapter returned and the arguments that are no longer what they were; with cotangents in the
    header, also the gradients of the arguments that require one.
    """
    sent = frames.unpack(header["tensors"], body)
    described = header["tensors"][: header["given"]]
    given = [_laid_out(*pair) for pair in zip(sent, described, strict=False)]
    arguments = [frames.decode(argument, given) for argument in header["arguments"]]
    with torch.set_grad_enabled(header["grad_enabled"]), watch.watching(getattr(adapters, header["call"], None)):
        value = frames.apply(_adapter(adapters, header["call"]), arguments, header["names"])
        outputs: list[Tensor] = []
        encoded = frames.encode(value, outputs)
        # What is sent is what there was while the watch looked: the end of an argument's life may run code.
        out.extend(tensor.clone() for tensor in outputs)
        reply = {"value": encoded, "outputs": len(outputs)}
        reply["changed"] = _append(out, _changed(given, described, body))
        if "cotangents" in header:
            try:
                cotangents = [frames.decode(cotangent, sent) for cotangent in header["cotangents"]]
                asking = [tensor for tensor in given if tensor.requires_grad]
                reply["gradients"] = _append(out, _gradients(outputs, cotangents, asking))
            except BaseException as error:
                reply["gradient_error"] = _described(error)
    return reply


def _learn(adapters: Any, header: dict[str, Any], body: bytearray, ask: Ask) -> bool:
    """Call an adapter to see which function it calls, and let the other side answer for that; tell whether it will."""
    if not header["arguments"]:
        for adapter in vars(adapters).values():
            import_what_it_names(adapter)
        code = find_named(header["call"], header["lesson"])
        return bool(code) and lend(code, header["call"], {name: Source(name) for name in header["lesson"]}, ask)
    given = frames.unpack(header["tensors"], body)
    arguments = [frames.decode(argument, given) for argument in header["arguments"]]
    adapter = _adapter(adapters, header["call"])
    named = dict(zip(header["lesson"], chain(arguments, repeat(None)), strict=False))
    own = getattr(unwrap(adapter), "__code__", None)
    with Lesson(own, named, importing.is_submitted) as lesson, suppress(Exception):
        frames.apply(adapter, arguments, header["names"])
    code, sources = lesson.code or own, lesson.sources or {name: Source(name) for name in named}
    return code is not None and lend(code, header["call"], sources, ask)


def _borrow(
    channel: int, tokens: list[str], request: dict[str, Any], tensors: Sequence[Tensor]
) -> tuple[dict[str, Any], list[Tensor]]:
    """Ask the other side something while it waits for the answer to its own question."""
    send(channel, frames.pack(request | {"token": tokens[0]}, tensors))
    header, body = next(_requests(channel))
    return header, frames.unpack(header["tensors"], body)


def _adapter(adapters: Any, name: str) -> Any:
    if not hasattr(adapters, name):
        raise NotWrittenError(f"write {name} in {adapters.__name__.replace('.', '/')}.py")
    return getattr(adapters, name)


def _laid_out(tensor: Tensor, description: dict[str, Any]) -> Tensor:
    """`tensor`, which is contiguous, with the strides and requires_grad of its description."""
    strides = description["strides"]
    if strides != list(tensor.stride()):
        # A dimension of stride 0 holds one element, seen many times.
        once = tensor[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in strides)]
        tensor = torch.empty_strided(once.shape, strides, dtype=tensor.dtype).copy_(once).expand(tensor.shape)
    return tensor.requires_grad_(description["requires_grad"])


def _gradients(outputs: list[Tensor], cotangents: list[Tensor | None], given: list[Tensor]) -> list[Tensor | None]:
    """The transposed Jacobian of `outputs` by each tensor in `given`, times the cotangents, or None."""
    if len(outputs) != len(cotangents):
        raise ValueError(f"expected {len(cotangents)} tensors, as the same call returned before, got {len(outputs)}")
    pairs = [pair for pair in zip(outputs, cotangents, strict=True) if pair[0].requires_grad and pair[1] is not None]
    if not pairs:
        return [None] * len(given)
    differentiable, by = zip(*pairs, strict=True)
    return list(torch.autograd.grad(differentiable, given, by, allow_unused=True))


def _changed(given: list[Tensor], descriptions: list[dict[str, Any]], body: bytearray) -> list[Tensor | None]:
    """For each tensor that was given None, or the tensor itself if it is no longer what `body` says."""
    changed: list[Tensor | None] = []
    start = 0
    for tensor, description in zip(given, descriptions, strict=True):
        end = start + math.prod(description["shape"]) * frames.DTYPES[description["dtype"]].itemsize
        same = list(tensor.shape) == description["shape"] and frames.elements(tensor) == body[start:end]
        changed.append(None if same else tensor)
        start = end
    return changed


def _append(tensors: list[Tensor], more: list[Tensor | None]) -> list[dict[str, int] | None]:
    """Add to `tensors` what is not None, and say where each came to lie."""
    references: list[dict[str, int] | None] = []
    for tensor in more:
        references.append(None if tensor is None else {"tensor": len(tensors)})
        tensors.extend([] if tensor is None else [tensor.clone()])
    return references


def _annotated(reply: dict[str, Any], header: dict[str, Any], watch: Watch) -> dict[str, Any]:
    forbidden = [[use.function, _below_root(use.file), use.number] for use in watch.uses]
    return reply | {"token": header["token"], "missing": sorted(importing.missing), "forbidden": forbidden}


def _described(error: BaseException) -> dict[str, Any]:
    try:
        message = str(error)[:MAX_TEXT]
    except BaseException:
        message = "(its message cannot be printed)"
    lines = [
        [_below_root(frame.f_code.co_filename), line, frame.f_code.co_name]
        for frame, line in walk_tb(error.__traceback__)
        if importing.is_submitted(frame.f_code.co_filename)
    ]
    if isinstance(error, SyntaxError) and importing.is_submitted(error.filename or ""):
        lines.append([_below_root(error.filename or ""), error.lineno or 1, "<module>"])
        message = str(error.msg)
    return {
        "type": type(error).__name__[:MAX_TEXT],
        "message": message,
        "lines": lines[-MAX_LINES:],
    }


def _below_root(path: str) -> str:
    return path.removeprefix(f"{importing.ROOT}/")
