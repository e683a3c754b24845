"""Serve one submission: import it, then call its adapters until the trusted side closes the channel.

The submission may tamper with this code and the channel, but that changes its own answers only: no expected value is
ever on this side.
"""

import importlib
import io
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
from whichline.rules.watch import Watch, import_modules_of
from whichline_grader.sandbox.inside import frames, importing
from whichline_grader.sandbox.inside.forwarding import Ask, find_named, forward_calls
from whichline_grader.sandbox.inside.randomness import seed

MAX_TEXT = 4_000
MAX_LINES = 30
# From adapters, their files, results and cases to findings and errors of the search.
Diagnose = Callable[..., tuple[list[str], list[str]]]


class NotWrittenError(Exception):
    """An adapter is missing. No NotImplementedError, which torch raises for a dtype that it does not support."""


def serve(channel: int, watch: Watch, diagnose: Diagnose | None = None) -> None:
    """Answer the frames on the file descriptor `channel`; the first one holds the submission."""
    adapters: Any = None
    files: dict[str, bytes] = {}
    tokens: list[str] = []
    for header, body in _read_requests(channel):
        tokens[:] = [header["token"]]
        tensors: list[Tensor] = []
        try:
            seed(header.get("seeds", (0, 0, 0)))
            reply: dict[str, Any] = {}
            if "files" in header:
                sources = io.BytesIO(body)
                files = {path: sources.read(size) for path, size in header["files"].items()}
                importing.install(files)
                adapters = importlib.import_module(header["adapters"])
            elif diagnose:
                sent = frames.unpack(header["tensors"], body)
                arguments = (frames.decode(each, sent) for each in header["arguments"])
                reply = {"value": diagnose(adapters, files, *arguments)}
            elif "lesson" in header:
                reply = {"value": _forward_function(adapters, header, body, partial(_call_grader, channel, tokens))}
            else:
                reply = _call(adapters, header, body, tensors, watch)
            frame = frames.pack(_annotate(reply, header, watch), tensors)
        except BaseException as error:  # whatever a submission raises is its answer
            frame = frames.pack(_annotate({"error": _describe(error)}, header, watch))
        send(channel, frame)


def send(channel: int, frame: bytes) -> None:
    rest = memoryview(frame)
    while rest:
        rest = rest[os.write(channel, rest) :]


def _read_requests(channel: int) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Read the header and body of each frame until the other end closes."""
    with open(channel, "rb", closefd=False) as sent:
        while prefix := sent.read(frames.PREFIX.size):
            header_bytes, body_bytes = frames.PREFIX.unpack(prefix)
            yield frames.parse_header(sent.read(header_bytes)), sent.read(body_bytes)


def _call(adapters: Any, header: dict[str, Any], body: bytes, out: list[Tensor], watch: Watch) -> dict[str, Any]:
    """Call an adapter; put the tensors of the reply into `out`, and return the rest of it.

    The reply holds what the adapter returned and the arguments that it changed. If the header has cotangents, it also
    holds the gradients of the arguments that require one.
    """
    sent = frames.unpack(header["tensors"], body)
    described = header["tensors"][: header["given"]]
    given = [_restore_strides(*pair) for pair in zip(sent, described, strict=False)]
    arguments = [frames.decode(argument, given) for argument in header["arguments"]]
    with torch.set_grad_enabled(header["grad_enabled"]), watch.watching(getattr(adapters, header["call"], None)):
        value = frames.apply(_find_adapter(adapters, header["call"]), arguments, header["names"])
        outputs: list[Tensor] = []
        encoded = frames.encode(value, outputs)
        # Copy while the watch is on: code may run when an argument is deleted, and could change the outputs.
        out.extend(tensor.clone() for tensor in outputs)
        reply = {"value": encoded, "outputs": len(outputs)}
        reply["changed"] = _append(out, _list_changed(given, described, body))
        if "cotangents" in header:
            try:
                cotangents = [frames.decode(cotangent, sent) for cotangent in header["cotangents"]]
                asking = [tensor for tensor in given if tensor.requires_grad]
                reply["gradients"] = _append(out, _differentiate(outputs, cotangents, asking))
            except BaseException as error:
                reply["gradient_error"] = _describe(error)
    return reply


def _forward_function(adapters: Any, header: dict[str, Any], body: bytes, ask: Ask) -> bool:
    """Call an adapter to find the function behind it, and forward that one's calls; tell whether that worked."""
    if not header["arguments"]:
        for adapter in vars(adapters).values():
            import_modules_of(adapter)
        code = find_named(header["call"], header["lesson"])
        sources = {name: Source(name) for name in header["lesson"]}
        return bool(code) and forward_calls(code, header["call"], sources, ask)
    given = frames.unpack(header["tensors"], body)
    arguments = [frames.decode(argument, given) for argument in header["arguments"]]
    adapter = _find_adapter(adapters, header["call"])
    named = dict(zip(header["lesson"], chain(arguments, repeat(None)), strict=False))
    own = getattr(unwrap(adapter), "__code__", None)
    with Lesson(own, named, importing.is_submitted) as lesson, suppress(Exception):
        frames.apply(adapter, arguments, header["names"])
    code, sources = lesson.code or own, lesson.sources or {name: Source(name) for name in named}
    return code is not None and forward_calls(code, header["call"], sources, ask)


def _call_grader(
    channel: int, tokens: list[str], request: dict[str, Any], tensors: Sequence[Tensor]
) -> tuple[dict[str, Any], list[Tensor]]:
    """Send a request to the grader, which is waiting for the answer to its own question."""
    send(channel, frames.pack(request | {"token": tokens[0]}, tensors))
    header, body = next(_read_requests(channel))
    return header, frames.unpack(header["tensors"], body)


def _find_adapter(adapters: Any, name: str) -> Any:
    if not hasattr(adapters, name):
        raise NotWrittenError(f"write {name} in {adapters.__name__.replace('.', '/')}.py")
    return getattr(adapters, name)


def _restore_strides(tensor: Tensor, description: dict[str, Any]) -> Tensor:
    """Give a contiguous tensor the strides and requires_grad of its description."""
    strides = description["strides"]
    if strides != list(tensor.stride()):
        # A dimension of stride 0 repeats one element.
        once = tensor[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in strides)]
        tensor = torch.empty_strided(once.shape, strides, dtype=tensor.dtype).copy_(once).expand(tensor.shape)
    return tensor.requires_grad_(description["requires_grad"])


def _differentiate(outputs: list[Tensor], cotangents: list[Tensor | None], given: list[Tensor]) -> list[Tensor | None]:
    """Multiply the cotangents by the Jacobian of `outputs` with respect to each tensor given; None if unused."""
    if len(outputs) != len(cotangents):
        raise ValueError(f"expected {len(cotangents)} tensors, as the same call returned before, got {len(outputs)}")
    pairs = [pair for pair in zip(outputs, cotangents, strict=True) if pair[0].requires_grad and pair[1] is not None]
    if not pairs:
        return [None] * len(given)
    differentiable, by = zip(*pairs, strict=True)
    return list(torch.autograd.grad(differentiable, given, by, allow_unused=True))


def _list_changed(given: list[Tensor], descriptions: list[dict[str, Any]], body: bytes) -> list[Tensor | None]:
    """For each tensor in `given`, itself if it differs from its bytes in `body`, else None."""
    changed: list[Tensor | None] = []
    start = 0
    for tensor, description in zip(given, descriptions, strict=True):
        end = start + math.prod(description["shape"]) * frames.DTYPES[description["dtype"]].itemsize
        same = list(tensor.shape) == description["shape"] and frames.elements(tensor) == body[start:end]
        changed.append(None if same else tensor)
        start = end
    return changed


def _append(tensors: list[Tensor], more: list[Tensor | None]) -> list[dict[str, int] | None]:
    return [frames.encode(None if tensor is None else tensor.clone(), tensors) for tensor in more]


def _annotate(reply: dict[str, Any], header: dict[str, Any], watch: Watch) -> dict[str, Any]:
    forbidden = [[use.function, _strip_root(use.file), use.number] for use in watch.uses]
    return reply | {"token": header["token"], "missing": sorted(importing.missing), "forbidden": forbidden}


def _describe(error: BaseException) -> dict[str, Any]:
    try:
        message = str(error)[:MAX_TEXT]
    except BaseException:
        message = "(its message cannot be printed)"
    lines = [
        [_strip_root(frame.f_code.co_filename), line, frame.f_code.co_name]
        for frame, line in walk_tb(error.__traceback__)
        if importing.is_submitted(frame.f_code.co_filename)
    ]
    if isinstance(error, SyntaxError) and importing.is_submitted(error.filename or ""):
        lines.append([_strip_root(error.filename or ""), error.lineno or 1, "<module>"])
        message = str(error.msg)
    return {"type": type(error).__name__[:MAX_TEXT], "message": message, "lines": lines[-MAX_LINES:]}


def _strip_root(path: str) -> str:
    return path.removeprefix(f"{importing.ROOT}/")
