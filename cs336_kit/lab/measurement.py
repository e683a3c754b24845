"""Measure the time and memory of every implementation of attention, and how far its answer is from PyTorch's."""

import ctypes
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from multiprocessing.connection import Connection
from pathlib import Path

import click
import torch
import torch._dynamo  # einops would import it in every fork
from rich.console import Console
from rich.progress import Progress
from rich.text import Text
from torch import Tensor

from cs336_kit.lab.bad_input import BadInput
from cs336_kit.lab.contenders import attend_exactly, list_contenders
from cs336_kit.lab.student import Attention, Student

DIRECTIONS = ("forward", "training")
HEADS, WIDTH = 4, 64
# A model has many layers; that is when it matters what each keeps for the backward pass.
LAYERS = 4
SECONDS = 2.0  # for one length and one direction, all contenders together
ROUNDS = 3
SHORT = 16
M_MMAP_THRESHOLD = -3  # malloc.h


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


def measure(student: Student, lengths: Sequence[int], device: str, compiled: bool, console: Console) -> list[Row]:
    """Measure every implementation that is written and runs here, and say which do not.

    Raises:
        BadInput: there is no such device.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise BadInput("PyTorch finds no GPU here (torch.cuda.is_available() is False): leave --device out")
    where = f"{torch.get_num_threads()} thread(s)" if device == "cpu" else torch.cuda.get_device_name()
    notes = [f"PyTorch {torch.__version__}, {where}"]
    contenders = list_contenders(student.adapters, compiled)
    peaks: dict[tuple[str, int, str], int | None] = {}
    # A thread that draws would be in the way of a fork.
    with Progress(console=console, transient=True, auto_refresh=False, disable=not console.is_terminal) as bar:
        # Memory comes first: it is measured in forks of this process, which may not have computed anything.
        for name, attention in bar.track(list(contenders.items()), description="Memory"):
            bar.refresh()
            try:
                for length, direction in product(lengths, DIRECTIONS):
                    peaks[name, length, direction] = measure_memory(student, direction, attention, length, device)
            except click.ClickException as reason:
                notes.append(f"{name} is left out: {reason.message.splitlines()[0]}")
                del contenders[name]
        yardstick = next(iter(contenders))
        costs: dict[tuple[str, int, str], Cost] = {}
        for length, direction in bar.track(list(product(lengths, DIRECTIONS)), description="Time"):
            bar.refresh()
            calls = {name: prepare_call(direction, each, length, device) for name, each in contenders.items()}
            seconds = time_calls(calls, device)
            for name in contenders:
                peak = peaks[name, length, direction]
                costs[name, length, direction] = summarise(seconds[name], seconds[yardstick], peak)
    if not compiled:
        notes.append("torch.compile is left out: --compile adds it")
    for note in notes:
        console.print(Text(note), soft_wrap=True)
    rows = []
    for length in lengths:
        tensors = make_inputs(length, device=device)
        exact = attend_exactly(*tensors)
        for name, attention in contenders.items():
            forward, training = (costs[name, length, direction] for direction in DIRECTIONS)
            rows.append(Row(length, name, forward, training, (attention(*tensors) - exact).abs().max().item()))
    return rows


def make_inputs(length: int, gradients: bool = False, device: str = "cpu") -> list[Tensor]:
    """Q, K and V of 4 heads with 64 features in float32, and the causal mask."""
    tensors = torch.randn(3, 1, HEADS, length, WIDTH, generator=torch.Generator().manual_seed(0)).to(device)
    mask = torch.ones(length, length, dtype=torch.bool, device=device).tril()
    return [*(x.clone().requires_grad_(gradients) for x in tensors), mask]


def prepare_call(direction: str, attention: Attention, length: int, device: str = "cpu") -> Callable[[], None]:
    """A forward pass, ready to be called; or in training, forward and backward through 4 layers.

    The output of each layer is the queries of the next.
    """
    training = direction == "training"
    Q, K, V, mask = make_inputs(length, training, device)

    def call() -> None:
        with torch.set_grad_enabled(training):
            x = Q
            for _ in range(LAYERS if training else 1):
                x = attention(x, K, V, mask)
            if training:
                torch.autograd.grad(x.sum(), (Q, K, V))

    return call


def time_calls(calls: Mapping[str, Callable[[], None]], device: str = "cpu") -> dict[str, list[float]]:
    """The seconds of each, round by round: the calls take turns, so that what disturbs one disturbs all."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        _time_call(call, device)
    began = time.perf_counter()
    for rounds in range(100):
        if rounds >= ROUNDS and time.perf_counter() - began > SECONDS:
            break
        for name, call in calls.items():
            seconds[name].append(_time_call(call, device))
    return seconds


def _time_call(call: Callable[[], None], device: str) -> float:
    start = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()  # the call returns before it has computed anything
    return time.perf_counter() - start


def summarise(seconds: Sequence[float], yardstick: Sequence[float], memory: int | None) -> Cost:
    """Summarise what one direction took.

    Args:
        seconds: of each round.
        yardstick: the seconds of what it is compared with, of the same rounds.
        memory: in bytes.
    """
    lower, median, upper = statistics.quantiles(seconds, n=4)
    low, middle, high = statistics.quantiles([a / b for a, b in zip(seconds, yardstick, strict=True)], n=4)
    return Cost(median, (upper - lower) / 2 / median, (middle, low, high), memory)


def measure_memory(student: Student, direction: str, attention: Attention, length: int, device: str) -> int | None:
    """The growth of memory during one call, in bytes: of the GPU's, or of resident memory in a fork of this process.

    On a CPU only on Linux; elsewhere None, after a short call that tells whether there is anything to measure. Nothing
    may have been computed in this process before: the threads of torch do not survive a fork.

    Args:
        student: puts an error of their code into words.
        direction: one of DIRECTIONS.
        attention: what is called.
        length: number of queries and of keys.
        device: "cpu" or "cuda".

    Raises:
        click.ClickException: the call raises an error, or ends the process.
    """
    if device == "cpu" and sys.platform == "linux":
        return _measure_in_fork(student, direction, attention, length)
    with student.in_words():
        call = prepare_call(direction, attention, length if device == "cuda" else SHORT, device)
        call()
        if device == "cpu":
            return None
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
    return torch.cuda.max_memory_allocated() - before


def _measure_in_fork(student: Student, direction: str, attention: Attention, length: int) -> int:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    arguments = (sender, student, direction, attention, length)
    process = multiprocessing.get_context("fork").Process(target=_send_peak, args=arguments)
    process.start()
    sender.close()
    try:
        answer = receiver.recv()
    except EOFError:
        process.join()
        answer = f"its process ended with exit status {process.exitcode}; was there enough memory?"
    process.join()
    if isinstance(answer, str):
        raise click.ClickException(answer)
    return answer


def _send_peak(sender: Connection, student: Student, direction: str, attention: Attention, length: int) -> None:
    """Send how far resident memory grows, or what went wrong."""
    # Each tensor gets pages of its own, which go back when it does: memory that malloc keeps is not attention's.
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, 2**16)
    try:
        with student.in_words():
            prepare_call(direction, attention, SHORT)()  # what the first call alone takes
            call = prepare_call(direction, attention, length)
            libc.malloc_trim(0)
            Path("/proc/self/clear_refs").write_text("5")  # start the peak anew
            before = _read_status("VmRSS")
            call()
            sender.send(_read_status("VmHWM") - before)
    except click.ClickException as error:
        sender.send(error.message)


def _read_status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))
