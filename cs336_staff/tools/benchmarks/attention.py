"""How long blockwise attention takes and how much memory it needs, next to what else there is.

    uv run python -m cs336_staff.tools.benchmarks.attention results/attention.json

measures, prints as it goes and keeps what it found in a file. It takes about half an hour.

8 heads of 64, float32 on a CPU. In each comparison the implementations take turns, and what counts is the ratio of
medians. With one thread, times are the processor time of that thread, which other programs disturb little. With more,
they are wall-clock times: a call during which the system took a processor away (more than 10 involuntary context
switches a second) is measured again, and a comparison that never got three undisturbed calls of each is marked.
Memory is the peak above what the process held before, in a fresh process for each call.
"""

import json
import math
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from cs336_basics.nn.functional import scaled_dot_product_attention
from cs336_kit.lab.blockwise.attention import blockwise_attention
from cs336_kit.lab.blockwise.masks import Mask, causal, document, padding, window

HEADS, WIDTH = 8, 64
LENGTHS_COMPILED = [512, 1024, 2048]
LENGTHS_BACKWARD = [512, 1024, 2048, 4096]
LENGTHS = [128, 256, 512, 1024, 2048, 4096, 8192, 16384]
MEMORY_LENGTHS = [1024, 2048, 4096, 8192, 16384, 32768]
# Implementations that hold the whole matrix, or take as long as they do, stop here.
LONGEST_WITH_MATRIX = {"time": 4096, "forward": 8192, "both": 4096}

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def fused(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, **options: bool) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(Q, K, V, attn_mask=mask, **options)


def query_chunks(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    """The first loop that tutorials show: the einsum version on 512 queries at a time, against all keys."""
    chunks = [slice(start, start + 512) for start in range(0, Q.shape[-2], 512)]
    return torch.cat(
        [scaled_dot_product_attention(Q[..., c, :], K, V, None if mask is None else mask[c]) for c in chunks], dim=-2
    )


def simple_tiles(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    """The second one: the online softmax over tiles of 256, each made anew, masked wherever there is a mask."""
    outputs = []
    for first_query in range(0, Q.shape[-2], 256):
        rows = slice(first_query, first_query + 256)
        q = Q[..., rows, :] / math.sqrt(Q.shape[-1])
        maximum = torch.full_like(q[..., :1], -1e30)
        total, weighted = torch.zeros_like(maximum), torch.zeros_like(q)
        for first_key in range(0, K.shape[-2], 256):
            columns = slice(first_key, first_key + 256)
            scores = q @ K[..., columns, :].mT
            if mask is not None:
                scores = scores.masked_fill(~mask[rows, columns], -math.inf)
            previous, maximum = maximum, torch.maximum(maximum, scores.amax(-1, keepdim=True))
            weights, shrink = torch.exp(scores - maximum), torch.exp(previous - maximum)
            total = total * shrink + weights.sum(-1, keepdim=True)
            weighted = weighted * shrink + weights @ V[..., columns, :]
        outputs.append(weighted / total)
    return torch.cat(outputs, dim=-2)


def masks(length: int) -> dict[str, tuple[Tensor | None, Mask | None]]:
    """Each mask as a boolean matrix and as an object."""
    position = torch.arange(length)
    document_ids = position * 8 // length
    lower = torch.ones(length, length, dtype=torch.bool).tril()
    return {
        "no mask": (None, None),
        "causal": (lower, causal),
        "causal window of 512": (lower.triu(-511), causal & window(512)),
        "half the keys padded": ((position < length // 2).repeat(length, 1), padding(torch.tensor(length // 2))),
        "8 documents": (document_ids[:, None] == document_ids, document(document_ids)),
    }


def inputs(length: int, magnitude: float = 1.0) -> list[Tensor]:
    torch.manual_seed(0)
    Q, K, V = (torch.randn(1, HEADS, length, WIDTH) for _ in range(3))
    return [Q * magnitude, K, V]


def contestants(length: int, name: str, backward: bool) -> dict[str, Attention]:
    """What is compared for one mask: the fused kernel with that mask comes first, the others are measured by it."""
    matrix, mask = masks(length)[name]
    others: dict[str, Attention] = {
        "fused": lambda Q, K, V: fused(Q, K, V, matrix),
        "blockwise": lambda Q, K, V: blockwise_attention(Q, K, V, matrix),
    }
    if mask is not None:
        others["blockwise, mask object"] = lambda Q, K, V: blockwise_attention(Q, K, V, mask)
    if not backward:
        # Queries this large take the path that tracks the maximum.
        others["blockwise, large logits"] = lambda Q, K, V: blockwise_attention(8 * Q, K, V, matrix)
    if name == "causal":
        others["fused, is_causal"] = lambda Q, K, V: fused(Q, K, V, is_causal=True)
    if name in ("causal", "no mask") and length <= LONGEST_WITH_MATRIX["time"]:
        others["einsum"] = lambda Q, K, V: scaled_dot_product_attention(Q, K, V, matrix)
        others["query chunks"] = lambda Q, K, V: query_chunks(Q, K, V, matrix)
        others["simple tiles"] = lambda Q, K, V: simple_tiles(Q, K, V, matrix)
    return others


def compiled(length: int) -> dict[str, Attention]:
    """The peers that need a C++ compiler, for the causal mask."""
    matrix = masks(length)["causal"][0]
    einsum = torch.compile(scaled_dot_product_attention)
    flex = torch.compile(flex_attention)
    blocks = create_block_mask(lambda b, h, q, k: q >= k, None, None, length, length, device="cpu")
    return {
        "einsum, compiled": lambda Q, K, V: einsum(Q, K, V, matrix),
        "flex_attention, compiled": lambda Q, K, V: flex(Q, K, V, block_mask=blocks),
    }


def with_backward(attention: Attention) -> Attention:
    """Forward and backward, with a gradient of ones."""

    def both(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
        Q, K, V = (x.detach().requires_grad_() for x in (Q, K, V))
        attention(Q, K, V).sum().backward()
        return V

    return both


def medians(calls: dict[str, Attention], tensors: list[Tensor], seconds: float) -> tuple[dict[str, float], bool]:
    """The median time of each call in seconds, the calls taking turns, and whether the machine was quiet meanwhile."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    quiet: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call(*tensors)
    one_thread = torch.get_num_threads() == 1
    clock = time.thread_time if one_thread else time.perf_counter
    patience = 60.0
    # On a machine that is never quiet, calls that were disturbed have to do.
    while sum(map(sum, times.values())) < seconds or (min(map(len, quiet.values())) < 3 and patience > 0):
        for name, call in calls.items():
            if not one_thread:
                patience -= wait_until_idle(patience)
            switches, began = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw, clock()
            call(*tensors)
            took = clock() - began
            switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - switches
            times[name].append(took)
            if one_thread or switches <= 10 * took:
                quiet[name].append(took)
            else:
                patience -= took
    enough = min(map(len, quiet.values())) >= 3
    return {name: statistics.median(values) for name, values in (quiet if enough else times).items()}, enough


def wait_until_idle(longest: float) -> float:
    """Wait until no other program runs, for at most `longest` seconds; returns how long it took. Linux only."""
    began = time.perf_counter()
    while (waited := time.perf_counter() - began) < longest:
        if Path("/proc/loadavg").read_text().split()[3].startswith("1/"):
            return waited
        time.sleep(0.01)
    return waited


MEMORY = {
    "einsum": lambda Q, K, V: scaled_dot_product_attention(Q, K, V, torch.ones(Q.shape[-2], Q.shape[-2]).bool().tril()),
    "fused": lambda Q, K, V: fused(Q, K, V, torch.ones(Q.shape[-2], Q.shape[-2], dtype=torch.bool).tril()),
    "fused, is_causal": lambda Q, K, V: fused(Q, K, V, is_causal=True),
    "blockwise, mask object": lambda Q, K, V: blockwise_attention(Q, K, V, causal),
}


def measure_peak(name: str, length: int, backward: bool) -> int:
    """The peak of resident memory during one call, in bytes above what was there before. Linux only."""

    def status(field: str) -> int:
        line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
        return int(line.split()[1]) * 1024

    call = with_backward(MEMORY[name]) if backward else MEMORY[name]
    call(*inputs(16))
    tensors = inputs(length)
    Path("/proc/self/clear_refs").write_text("5")  # start the peak anew
    before = status("VmRSS")
    call(*tensors)
    return status("VmHWM") - before


def machine() -> str:
    """The processor, the threads, the version of PyTorch, and the quickest of 20 large matrix products."""
    processor = platform.processor()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next((line.split(": ")[1] for line in lines if line.startswith("model name")), processor)
    threads = torch.get_num_threads()
    clock = time.thread_time if threads == 1 else time.perf_counter
    A, out = torch.randn(2048, 2048), torch.empty(2048, 2048)
    times = []
    for _ in range(20):
        began = clock()
        torch.mm(A, A, out=out)
        times.append(clock() - began)
    peak = 2 * 2048**3 / min(times) / 1e9
    return f"{processor}, {threads} thread(s), PyTorch {torch.__version__}, matrix product at {peak:.0f} GFLOP/s"


def measure_time(length: int, name: str, calls: dict[str, Attention], backward: bool) -> list[dict]:
    if backward:
        calls = {what: with_backward(call) for what, call in calls.items()}
    rows = []
    times, quiet = medians(calls, inputs(length), seconds=2.0)
    for what, took in times.items():
        ratio = took / times["fused"]
        row = {
            "kind": "time",
            "direction": "both" if backward else "forward",
            "length": length,
            "mask": name,
            "what": what,
        }
        rows.append(row | {"seconds": took, "ratio": ratio, "quiet": quiet})
        mark = "" if quiet else "  (disturbed)"
        click.echo(f"{row['direction']:8}{length:6}  {name:22}{what:26}{took * 1e3:9.2f} ms {ratio:7.3f}{mark}")
    return rows


def measure_memory(length: int, what: str, backward: bool) -> dict:
    command = [
        sys.executable,
        "-m",
        "cs336_staff.tools.benchmarks.attention",
        "--peak-of",
        what,
        "--length",
        str(length),
    ]
    if backward:
        command.append("--backward")
    peak = int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    row = {
        "kind": "memory",
        "direction": "both" if backward else "forward",
        "length": length,
        "what": what,
        "bytes": peak,
    }
    click.echo(f"{row['direction']:8}{length:6}  {what:26}{peak / 2**20:9.1f} MiB")
    return row


@click.command()
@click.argument("output", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--peak-of", type=click.Choice(list(MEMORY)), help="Only print the peak memory of one call, in bytes.")
@click.option("--length", type=int, help="How many queries and keys that call has.")
@click.option("--backward", is_flag=True, help="Whether it includes the backward pass.")
@click.option("--threads", type=int, default=torch.get_num_threads(), show_default=True)
def main(output: Path | None, peak_of: str | None, length: int, backward: bool, threads: int) -> None:
    """Measure everything and write it to OUTPUT, or the peak memory of one call in this process."""
    if peak_of is not None:
        click.echo(measure_peak(peak_of, length, backward))
        return
    if output is None:
        raise click.UsageError("expected OUTPUT, the file to write what is measured to")
    torch.set_num_threads(threads)
    name_of_machine = machine()
    click.echo(name_of_machine)
    rows = [
        measure_memory(length, what, backward)
        for backward in (False, True)
        for what in MEMORY
        for length in MEMORY_LENGTHS
        if what != "einsum" or length <= LONGEST_WITH_MATRIX["both" if backward else "forward"]
    ]
    for backward, lengths in ((False, LENGTHS), (True, LENGTHS_BACKWARD)):
        for length in lengths:
            for name in masks(length):
                rows += measure_time(length, name, contestants(length, name, backward), backward)
    for length in LENGTHS_COMPILED:
        calls = {"fused": contestants(length, "causal", False)["fused"], **compiled(length)}
        rows += [row for row in measure_time(length, "causal", calls, False) if row["what"] != "fused"]
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({"machine": name_of_machine, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
