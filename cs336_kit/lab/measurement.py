"""Measure how long a call takes and how much memory it needs."""

import ctypes
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import click
import torch
import torch._dynamo  # einops would import it in every fork
from torch import Tensor

from cs336_kit.lab.student import Attention

HEADS, WIDTH = 4, 64
# A model has many layers; that is when it matters what each keeps for the backward pass.
LAYERS = 4
SECONDS = 2.0  # for one length and one direction, all contenders together
ROUNDS = 3
SHORT = 16
M_MMAP_THRESHOLD = -3  # malloc.h


class LeftOut(Exception):
    """A contender that cannot be measured; the message says why."""


@dataclass(frozen=True)
class Cost:
    """The time and memory that an implementation takes for one direction at one length.

    Args:
        seconds: the median time.
        scatter: half the distance of the quartiles of the times, in terms of the median.
        ratio: the median of its time over the yardstick's of the same round; its lower and upper quartiles.
        bytes: growth of memory; None where it cannot be measured.
    """

    seconds: float
    scatter: float
    ratio: tuple[float, float, float]
    bytes: int | None


@dataclass(frozen=True)
class Row:
    """One implementation at one length.

    Args:
        length: number of queries and of keys.
        implementation: its name.
        forward: what a forward pass takes.
        training: what forward and backward through several layers take.
        largest_difference: of the output from PyTorch's own in float64.
    """

    length: int
    implementation: str
    forward: Cost
    training: Cost
    largest_difference: float


def inputs(length: int, gradients: bool = False, device: str = "cpu") -> list[Tensor]:
    """Q, K and V of 4 heads with 64 features in float32, and the causal mask."""
    tensors = torch.randn(3, 1, HEADS, length, WIDTH, generator=torch.Generator().manual_seed(0)).to(device)
    mask = torch.ones(length, length, dtype=torch.bool, device=device).tril()
    return [*(x.clone().requires_grad_(gradients) for x in tensors), mask]


def forward(attention: Attention, length: int, device: str = "cpu") -> Callable[[], None]:
    """One forward pass, ready to be called."""
    tensors = inputs(length, device=device)

    def call() -> None:
        with torch.no_grad():
            attention(*tensors)

    return call


def training(attention: Attention, length: int, device: str = "cpu") -> Callable[[], None]:
    """Forward and backward through 4 layers, the output of each being the queries of the next, ready to be called."""
    Q, K, V, mask = inputs(length, gradients=True, device=device)

    def call() -> None:
        x = Q
        for _ in range(LAYERS):
            x = attention(x, K, V, mask)
        torch.autograd.grad(x.sum(), (Q, K, V))

    return call


DIRECTIONS = {"forward": forward, "training": training}


def times(calls: Mapping[str, Callable[[], None]], device: str = "cpu") -> dict[str, list[float]]:
    """The seconds of each, round by round: the calls take turns, so that what disturbs one disturbs all."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    began = time.perf_counter()
    for rounds in range(100):
        if rounds >= ROUNDS and time.perf_counter() - began > SECONDS:
            break
        for name, call in calls.items():
            _wait(device)
            start = time.perf_counter()
            call()
            _wait(device)
            seconds[name].append(time.perf_counter() - start)
    return seconds


def _wait(device: str) -> None:
    """A call on a GPU returns before it has computed anything."""
    if device == "cuda":
        torch.cuda.synchronize()


def cost(seconds: Sequence[float], yardstick: Sequence[float], memory: int | None) -> Cost:
    """Summarise what one direction took.

    Args:
        seconds: of each round.
        yardstick: the seconds of what it is compared with, of the same rounds.
        memory: in bytes.
    """
    lower, median, upper = statistics.quantiles(seconds, n=4)
    low, middle, high = statistics.quantiles([a / b for a, b in zip(seconds, yardstick, strict=True)], n=4)
    return Cost(median, (upper - lower) / 2 / median, (middle, low, high), memory)


def peak_memory_on_gpu(
    attention: Attention, direction: str, length: int, in_words: Callable[[], AbstractContextManager[None]]
) -> int:
    """The growth of the GPU's memory during one call, in bytes, as PyTorch counts what it hands out.

    Raises:
        LeftOut: the call raises an error.
    """
    try:
        with in_words():
            call = DIRECTIONS[direction](attention, length, "cuda")
            call()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            call()
    except click.ClickException as error:
        raise LeftOut(_first_line(error)) from None
    return torch.cuda.max_memory_allocated() - before


def peak_memory(
    attention: Attention, direction: str, length: int, in_words: Callable[[], AbstractContextManager[None]]
) -> int | None:
    """The growth of resident memory during one call, in bytes, in a fork of this process.

    Only on Linux; elsewhere None, after a short call that tells whether there is anything to measure. Nothing may have
    been computed in this process before: the threads of torch do not survive a fork.

    Args:
        attention: what is called.
        direction: one of DIRECTIONS.
        length: number of queries and of keys.
        in_words: turns an error of the student's code into a click.ClickException.

    Raises:
        LeftOut: the call raises an error, or ends the process.
    """
    if sys.platform != "linux":
        try:
            with in_words():
                DIRECTIONS[direction](attention, SHORT)()
        except click.ClickException as error:
            raise LeftOut(_first_line(error)) from None
        return None
    receiver, sender = multiprocessing.Pipe(duplex=False)
    arguments = (sender, attention, direction, length, in_words)
    process = multiprocessing.get_context("fork").Process(target=_send_peak, args=arguments)
    process.start()
    sender.close()
    try:
        answer = receiver.recv()
    except EOFError:
        answer = None
    process.join()
    if answer is None:
        raise LeftOut(f"its process ended with exit status {process.exitcode}; was there enough memory?")
    if isinstance(answer, str):
        raise LeftOut(answer)
    return answer


def _send_peak(
    sender: Connection,
    attention: Attention,
    direction: str,
    length: int,
    in_words: Callable[[], AbstractContextManager[None]],
) -> None:
    # Each tensor gets pages of its own, which go back when it does: memory that malloc keeps is not attention's.
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, 2**16)
    try:
        with in_words():
            DIRECTIONS[direction](attention, SHORT)()  # what the first call alone takes
            call = DIRECTIONS[direction](attention, length)
            libc.malloc_trim(0)
            Path("/proc/self/clear_refs").write_text("5")  # start the peak anew
            before = _resident("VmRSS")
            call()
            sender.send(_resident("VmHWM") - before)
    except click.ClickException as error:
        sender.send(_first_line(error))


def _first_line(error: click.ClickException) -> str:
    return error.message.splitlines()[0]


def _resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))
