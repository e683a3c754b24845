"""Time the lab's blockwise attention next to PyTorch's fused kernel with the same mask.

    uv run python -m cs336_staff.tools.benchmarks.attention

prints the tables, writes them into `cs336_staff/docs/blockwise.md`, and draws `blockwise_time.png` beside it. It takes
about four minutes on a quiet machine with two cores.

8 heads of 64, float32 on a CPU. Implementations take turns, and what counts is the ratio of their medians. Times are
wall-clock times, but with one thread processor time, which other programs disturb less. Memory is the peak above what
the process held before, in a fresh process for each call.
"""

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import click
import torch
from matplotlib.figure import Figure
from torch import Tensor

from cs336_basics.nn.blockwise import blockwise_attention as students
from cs336_basics.nn.functional import scaled_dot_product_attention
from cs336_kit.lab.blockwise import forward
from cs336_kit.lab.blockwise.attention import blockwise_attention
from cs336_kit.lab.blockwise.masks import Mask, Visibility, causal, document, padding, window

PAGE = Path(__file__).parents[2] / "docs" / "blockwise.md"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"

SECONDS = 0.8  # for one mask and length, all that are compared together
# Length and largest ratio to the fused kernel that blockwise attention should have.
GOALS: dict[str, dict[int, float | None]] = {
    "no mask": {128: 1.3, 256: 1.3, 512: None, 1024: 1.1, 4096: 1.1},
    "causal": {128: 1.3, 256: 1.3, 512: None, 1024: None, 4096: 0.5, 8192: 0.5, 16384: 0.5},
    "causal window of 512": {1024: None, 4096: 0.15, 8192: 0.1},
    "half the keys padded": {1024: 0.6, 4096: 0.6},
    "8 documents": {1024: None, 4096: 0.25},
    "causal, with backward": {1024: None, 4096: 0.7},
}
STEPS_LENGTH = 2048

Call = Callable[[], object]


@dataclass(frozen=True)
class Setting:
    """The number of torch's threads, and of other processes that compute at the same time."""

    threads: int
    neighbours: int = 0

    def __str__(self) -> str:
        threads = f"{self.threads} thread" + "s" * (self.threads > 1)
        return threads + (f", {self.neighbours} busy neighbours" if self.neighbours else "")

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Have it so for a while."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(self.neighbours)]
        try:
            yield
        finally:
            torch.set_num_threads(before)
            for process in busy:
                process.kill()
                process.wait()


def fused(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(Q, K, V, attn_mask=mask)


def masks(name: str, length: int) -> tuple[Tensor | None, Mask | None]:
    """A mask as a boolean matrix and as an object."""
    position = torch.arange(length)
    distance = position[:, None] - position
    ids = position * 8 // length
    match name:
        case "no mask":
            return None, None
        case "causal" | "causal, with backward":
            return distance >= 0, causal
        case "causal window of 512":
            return (distance >= 0) & (distance < 512), causal & window(512)
        case "half the keys padded":
            return (position < length // 2).repeat(length, 1), padding(torch.tensor(length // 2))
        case "8 documents":
            return ids[:, None] == ids, document(ids)
    raise ValueError(name)


def inputs(length: int) -> list[Tensor]:
    return list(torch.randn(3, 1, 8, length, 64, generator=torch.Generator().manual_seed(0)))


def both_passes(attention: Callable[..., Tensor], length: int, mask: object) -> Call:
    tensors = [x.requires_grad_() for x in inputs(length)]
    return lambda: torch.autograd.grad(attention(*tensors, mask).sum(), tensors)


def medians(calls: Mapping[str, Call]) -> dict[str, float]:
    """The median time of each call in seconds, the calls taking turns."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in calls}
    rounds, began = 0, time.perf_counter()
    while rounds < 4 or time.perf_counter() - began < SECONDS:
        for name, call in calls.items():
            start = clock()
            call()
            times[name].append(clock() - start)
        rounds += 1
        if rounds == 2 and time.perf_counter() - began > 8:  # such long calls need no round to warm up
            return {name: statistics.median(values) for name, values in times.items()}
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def compare(name: str, length: int) -> tuple[float, float]:
    """Seconds that the fused kernel and blockwise attention take."""
    matrix, mask = masks(name, length)
    if name == "causal, with backward":
        calls = {
            "fused": both_passes(fused, length, matrix),
            "blockwise": both_passes(blockwise_attention, length, mask),
        }
    else:
        Q, K, V = inputs(length)
        calls = {"fused": lambda: fused(Q, K, V, matrix), "blockwise": lambda: blockwise_attention(Q, K, V, mask)}
    took = medians(calls)
    return took["fused"], took["blockwise"]


@dataclass(frozen=True)
class Blunt(Mask):
    """A mask that tells less of its blocks than `mask` does, so that fewer are skipped or left as they are."""

    mask: Mask
    skips: bool

    def matrix(self, index: tuple[int, ...]) -> Mask:
        return self

    def visibility(self, rows: slice, columns: slice) -> Visibility:
        return min(self.mask.visibility(rows, columns), Visibility.SOME) if self.skips else Visibility.SOME

    def tile(self, rows: slice, columns: slice, device: torch.device) -> Tensor:
        return self.mask.tile(rows, columns, device)


def steps() -> dict[str, float]:
    """Seconds of a causal call, from einsum to the lab's, each with one thing more than the one before."""
    Q, K, V = inputs(STEPS_LENGTH)
    matrix, _ = masks("causal", STEPS_LENGTH)

    def with_maximum(mask: Mask) -> Tensor:
        with patch.object(forward, "scores_are_small", lambda *_: False):
            return blockwise_attention(Q, K, V, mask)

    return medians(
        {
            "einsum on the whole matrix": lambda: scaled_dot_product_attention(Q, K, V, matrix),
            "the two loops of the handout": lambda: students(Q, K, V, matrix),
            "the lab's loops: one block of memory, bmm, 2^x": lambda: with_maximum(Blunt(causal, skips=False)),
            "hidden blocks are skipped": lambda: with_maximum(Blunt(causal, skips=True)),
            "blocks that are all visible need no mask": lambda: with_maximum(causal),
            "no maximum where no score can be large": lambda: blockwise_attention(Q, K, V, causal),
        }
    )


MEMORY = {
    "einsum": lambda Q, K, V: scaled_dot_product_attention(Q, K, V, masks("causal", Q.shape[-2])[0]),
    "fused": lambda Q, K, V: fused(Q, K, V, masks("causal", Q.shape[-2])[0]),
    "blockwise": lambda Q, K, V: blockwise_attention(Q, K, V, causal),
}
MEMORY_LENGTHS = [2048, 4096, 8192]


def peak_of(name: str, length: int) -> int:
    """The peak of resident memory during one causal call, in bytes above what was there before. Linux only."""

    def status(field: str) -> int:
        line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
        return int(line.split()[1]) * 1024

    MEMORY[name](*inputs(16))
    tensors = inputs(length)
    Path("/proc/self/clear_refs").write_text("5")  # start the peak anew
    before = status("VmRSS")
    MEMORY[name](*tensors)
    return status("VmHWM") - before


def in_fresh_process(name: str, length: int) -> int:
    command = [sys.executable, "-m", "cs336_staff.tools.benchmarks.attention", "--peak-of", name, str(length)]
    return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def machine() -> str:
    processor = platform.processor()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next((line.split(": ")[1] for line in lines if line.startswith("model name")), processor)
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    return f"{processor}, {os.cpu_count()} processors, PyTorch {torch.__version__}, load {load} before it began"


def table(lines: list[list[str]], text_columns: int) -> str:
    rule = ["---"] * text_columns + ["--:"] * (len(lines[0]) - text_columns)
    return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], rule, *lines[1:]]) + "\n"


def time_table(settings: list[Setting]) -> tuple[str, dict[Setting, dict[int, tuple[float, float]]]]:
    """The comparison in Markdown, and the times of the causal mask by length."""
    lines = [["mask", "length", "goal", f"fused kernel, {settings[0]}", *map(str, settings)]]
    times: dict[Setting, dict[int, tuple[float, float]]] = {setting: {} for setting in settings}
    for name, goals in GOALS.items():
        for length, goal in goals.items():
            took = {}
            for setting in settings:
                if not setting.neighbours or length <= 4096:  # beside others, long calls would take minutes
                    with setting.in_force():
                        took[setting] = compare(name, length)
            ratios = [f"{took[s][1] / took[s][0]:.2f}" if s in took else "" for s in settings]
            milliseconds = f"{took[settings[0]][0] * 1e3:.1f} ms"
            lines.append([name, str(length), "" if goal is None else f"≤ {goal}", milliseconds, *ratios])
            click.echo("  ".join(lines[-1]), err=True)
            if name == "causal":
                for setting, seconds in took.items():
                    times[setting][length] = seconds
    return table(lines, 1), times


def steps_table() -> str:
    with Setting(1).in_force():
        took = steps()
    lines = [["what is added", "time", "factor"]]
    for previous, (name, seconds) in zip([None, *took.values()], took.items(), strict=False):
        factor = "" if previous is None else f"{previous / seconds:.2f}"
        lines.append([name, f"{seconds * 1e3:.0f} ms", factor])
    return table(lines, 1)


def memory_table() -> str:
    lines = [["MiB", *map(str, MEMORY_LENGTHS)]]
    lines += [[name, *(f"{in_fresh_process(name, n) / 2**20:.1f}" for n in MEMORY_LENGTHS)] for name in MEMORY]
    return table(lines, 1)


def draw(path: Path, times: dict[Setting, dict[int, tuple[float, float]]]) -> None:
    """Time over length, causal, for each setting."""
    figure = Figure(figsize=(7, 5.5), layout="constrained")
    axes = figure.subplots()
    for setting, colour in zip(times, ("C0", "C1", "C2", "C3"), strict=False):
        for which, name, style in ((0, "fused", "--"), (1, "blockwise", "-")):
            seconds = {length: both[which] * 1e3 for length, both in times[setting].items()}
            label = f"{name}, {setting}"
            axes.plot(list(seconds), list(seconds.values()), style, color=colour, marker="o", markersize=4, label=label)
    lengths = list(GOALS["causal"])
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="queries and keys",
        ylabel="ms (one thread: processor time)",
        title="A causal forward pass",
    )
    axes.set_xticks(lengths, [str(n) for n in lengths])
    axes.minorticks_off()
    figure.legend(loc="outside lower center", ncols=2)
    figure.savefig(path, dpi=120)


@click.command()
@click.option(
    "--peak-of", "peak", type=(click.Choice(list(MEMORY)), int), help="Only the memory of one call, in bytes."
)
def main(peak: tuple[str, int] | None) -> None:
    """Measure, print, and write what was measured into the page."""
    if peak is not None:
        click.echo(peak_of(*peak))
        return
    everyone = os.cpu_count() or 1
    settings = [Setting(n) for n in sorted({1, min(2, everyone), everyone})] + [Setting(everyone, neighbours=2)]
    name_of_machine = machine()
    memory, way = memory_table(), steps_table()
    times, of_causal = time_table(settings)
    measured = (
        f"{name_of_machine}.\n\n"
        f"The time of blockwise attention as a multiple of the fused kernel's (one thread: processor time):\n\n"
        f"{times}\n"
        f"![Time over length of a causal forward pass](blockwise_time.png)\n\n"
        f"From einsum to the lab's: causal, length {STEPS_LENGTH}, one thread. A factor is to the line above it:\n\n"
        f"{way}\n"
        f"Peak memory of a causal forward pass, its mask included:\n\n{memory}"
    )
    click.echo(measured)
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(before + BEGIN + measured + END + rest.split(END)[1], encoding="utf-8")
    draw(PAGE.with_name("blockwise_time.png"), of_causal)


if __name__ == "__main__":
    main()
