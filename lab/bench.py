"""Time and memory of the student's attention beside PyTorch's back ends, and beside itself in chunks or compiled."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import torch
from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.profiler import ProfilerActivity, profile
from torch.utils.benchmark import Compare, Timer

from lab.attention import Attention
from whichline.engine.silence import silence

HEADS, WIDTH, CHUNK = 4, 64, 128
SECONDS = 0.2  # for each time, at least
BACK_ENDS = {
    "PyTorch, math": SDPBackend.MATH,
    "PyTorch, flash": SDPBackend.FLASH_ATTENTION,
    "PyTorch, efficient": SDPBackend.EFFICIENT_ATTENTION,
    "PyTorch, cudnn": SDPBackend.CUDNN_ATTENTION,
}
COMPILED = "yours, compiled"
CONTENDERS = ("yours", COMPILED, "yours, in chunks", "yours, blockwise", *BACK_ENDS, "PyTorch, is_causal")


def measure(student: Attention, lengths: list[int], device: str, is_compiled: bool = False) -> Iterator[RenderableType]:
    """Measure every implementation that is written and runs here, and say which do not; then the tables.

    With a causal mask, in float32; on a GPU in bfloat16, as flash and cudnn take nothing wider. With `is_compiled` the
    student's attention is also measured after `torch.compile`, which takes long.
    """
    times, contenders = [], []
    for name in (each for each in CONTENDERS if is_compiled or each != COMPILED):
        if name == COMPILED:
            yield Text("Compiling yours, which may take a minute")
        try:
            with silence(), student.in_words():
                prepare(student, name, 16, True, device)()
            contenders.append(name)
        except click.ClickException as error:
            why = "it does not run here" if name in BACK_ENDS else error.message.splitlines()[0]
            yield Text(f"{name} is left out: {why}")
    for backward, direction in enumerate(("forward", "forward and backward")):
        memory = Table("", *map(str, lengths), box=SIMPLE_HEAD, show_edge=False)
        for name in contenders:
            peaks = []
            for length in lengths:
                call = prepare(student, name, length, bool(backward), device)
                names = {"label": direction, "sub_label": name, "description": str(length)}
                timer = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads(), **names)
                with silence():
                    times.append(timer.blocked_autorange(min_run_time=SECONDS))
                    peaks.append(measure_memory(call, device) / 2**20)
            memory.add_row(name, *(f"{peak:.1f}" for peak in peaks))
        yield Text(f"\nMiB of tensors held at most, {direction}\n")
        yield memory
    table = Compare(times)
    table.trim_significant_figures()
    yield Text(f"\n{table}")


def attend(student: Attention, name: str, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> Tensor:
    """Causal attention, by one of CONTENDERS."""
    if name == "yours":
        return student.adapters.run_scaled_dot_product_attention(Q, K, V, mask)
    if name == COMPILED:
        return compile_once(student.adapters.run_scaled_dot_product_attention)(Q, K, V, mask)
    if name == "yours, in chunks":  # no query knows of another, so nothing changes but the memory
        chunks = zip(Q.split(CHUNK, dim=-2), mask.split(CHUNK, dim=-2), strict=True)
        return torch.cat([attend(student, "yours", queries, K, V, rows) for queries, rows in chunks], dim=-2)
    if name == "yours, blockwise":
        return student.adapters.run_blockwise_attention(Q, K, V, mask)
    if name == "PyTorch, is_causal":  # so it may skip what the mask hides
        return scaled_dot_product_attention(Q, K, V, is_causal=True)
    with sdpa_kernel(BACK_ENDS[name]):
        return scaled_dot_product_attention(Q, K, V, attn_mask=mask)


@cache
def compile_once(attention: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function compiled by `torch.compile`, once for all lengths."""
    return torch.compile(attention, dynamic=True)


def prepare(student: Attention, name: str, length: int, backward: bool, device: str) -> Callable[[], None]:
    """A call, ready to be measured."""
    drawn = torch.randn(3, 1, HEADS, length, WIDTH, generator=torch.Generator().manual_seed(0))
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    Q, K, V = (x.to(device, dtype).requires_grad_(backward) for x in drawn)
    mask = torch.ones(length, length, dtype=torch.bool, device=device).tril()

    def call() -> None:
        output = attend(student, name, Q, K, V, mask)
        if backward:
            torch.autograd.grad(output.sum(), (Q, K, V))

    return call


def measure_memory(call: Callable[[], object], device: str) -> int:
    """The most bytes of tensors that a call holds at once: counted, so always the same."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        call()
    with TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    allocations = sorted((each for each in events if each["name"] == "[memory]"), key=lambda each: each["ts"])
    return max(accumulate(each["args"]["Bytes"] for each in allocations))
