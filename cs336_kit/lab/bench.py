"""Time and memory of the student's attention next to PyTorch's own: measured, as a table and in words."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, product
from pathlib import Path

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from cs336_kit.lab.bad_input import BadInput
from cs336_kit.lab.contenders import LINEAR, labs, linear_attention, pytorchs, reference, students
from cs336_kit.lab.measurement import (
    DIRECTIONS,
    Cost,
    LeftOut,
    Row,
    cost,
    inputs,
    peak_memory,
    peak_memory_on_gpu,
    times,
)
from cs336_kit.lab.student import Attention, Student

PYTORCH = "PyTorch, "
# Times whose quartiles are further than this from their median, in terms of it, rank nothing.
SCATTERED = 0.25
TIED = 3  # more that are as quick as each other are not named


def measure(student: Student, lengths: Sequence[int], device: str, compiled: bool, console: Console) -> list[Row]:
    """Measure every implementation that is written and runs here, and say which do not.

    Raises:
        BadInput: there is no such device.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise BadInput("PyTorch finds no GPU here (torch.cuda.is_available() is False): leave --device out")
    contenders = students(student.adapters, compiled) | labs() | pytorchs() | {LINEAR: linear_attention}
    peaks: dict[tuple[str, int, str], int | None] = {}
    left_out: dict[str, str] = {}
    peak = peak_memory_on_gpu if device == "cuda" else peak_memory
    # A thread that draws would be in the way of a fork.
    with Progress(console=console, transient=True, auto_refresh=False, disable=not console.is_terminal) as bar:
        # Memory comes first: it is measured in forks of this process, which may not have computed anything.
        for name, attention in bar.track(contenders.items(), description="Memory"):
            bar.refresh()
            try:
                for length, direction in product(lengths, DIRECTIONS):
                    peaks[name, length, direction] = peak(attention, direction, length, student.in_words)
            except LeftOut as reason:
                left_out[name] = str(reason)
        contenders = {name: attention for name, attention in contenders.items() if name not in left_out}
        yardstick = next(iter(contenders))
        costs: dict[tuple[str, int, str], Cost] = {}
        for length, direction in bar.track(list(product(lengths, DIRECTIONS)), description="Time"):
            bar.refresh()
            calls = {name: DIRECTIONS[direction](attention, length, device) for name, attention in contenders.items()}
            seconds = times(calls, device)
            for name in contenders:
                memory = peaks[name, length, direction]
                costs[name, length, direction] = cost(seconds[name], seconds[yardstick], memory)
    for line in _notes(list(contenders), left_out, device, compiled):
        console.print(Text(line), soft_wrap=True)
    return [
        Row(
            length,
            name,
            costs[name, length, "forward"],
            costs[name, length, "training"],
            _difference(attention, inputs(length, device=device)),
        )
        for length in lengths
        for name, attention in contenders.items()
    ]


def _difference(attention: Attention, tensors: Sequence[torch.Tensor]) -> float:
    return (attention(*tensors) - reference(*tensors)).abs().max().item()


def _notes(measured: Sequence[str], left_out: Mapping[str, str], device: str, compiled: bool) -> Iterator[str]:
    """Say what this machine is and has, and what is missing from the table."""
    where = f"{torch.get_num_threads()} thread(s)" if device == "cpu" else torch.cuda.get_device_name()
    yield f"PyTorch {torch.__version__}, {where}"
    has, lacks = (
        [name[len(PYTORCH) :] for name in names if name.startswith(PYTORCH)] for names in (measured, left_out)
    )
    yield f"PyTorch's own attention has these back ends here: {', '.join(has)}; not here: {', '.join(lacks) or 'none'}"
    for name, reason in left_out.items():
        if not name.startswith(PYTORCH):
            yield f"{name} is left out: {reason}"
    if not compiled:
        yield "torch.compile is left out: --compile adds it"


def bench_text(rows: Sequence[Row]) -> Iterator[RenderableType]:
    """A table for each length; then in words which is quickest, by how much and from which length."""
    for length, group in groupby(rows, key=lambda row: row.length):
        yield ""
        yield _table(length, list(group))
    ratio = f"of the time to that of {rows[0].implementation} in the same round"
    yield Text(f"\nratio: {ratio}, median ± half the distance of its quartiles", "dim")
    yield ""
    for direction in DIRECTIONS:
        yield from map(Text, _in_words(rows, direction))
    if any(row.implementation == LINEAR for row in rows):
        yield Text(
            f"{LINEAR} is another function, so its difference is not rounding: its weights are flatter, and it knows "
            "no mask but the causal one."
        )
    worst = max(rows, key=_scatter)
    if _scatter(worst) > SCATTERED:
        yield Text(
            f"\n→ The times scatter: half of those of {worst.implementation} at length {worst.length} are about "
            f"{_scatter(worst):.0%} or more from their median. Something else keeps this machine busy, so a ranking "
            "may be chance: run it again when it is quiet.",
            "yellow",
        )


def _scatter(row: Row) -> float:
    return max(row.forward.scatter, row.training.scatter)


def _table(length: int, rows: Sequence[Row]) -> Table:
    """Of one length; 80 columns are enough."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, collapse_padding=True)
    table.add_column(f"length {length}", no_wrap=True, vertical="bottom")
    for column in ("forward\nms", "\nratio", "\nMiB", "training\nms", "\nratio", "\nMiB", "differs\nby"):
        table.add_column(column, justify="right")
    for row in rows:
        cells = (cell for each in (row.forward, row.training) for cell in _cells(each))
        table.add_row(row.implementation, *cells, f"{row.largest_difference:.0e}")
    return table


def _cells(found: Cost) -> tuple[str, str, str]:
    middle, low, high = found.ratio
    memory = "?" if found.bytes is None else _figures(found.bytes / 2**20)
    return _figures(found.seconds * 1e3), f"{middle:.2f}±{(high - low) / 2:.2f}", memory


def _figures(x: float) -> str:
    return f"{x:.1f}" if x < 100 else f"{x:.0f}"


def _in_words(rows: Sequence[Row], direction: str) -> Iterator[str]:
    """Name the quickest implementation, and say which are quicker than the first, and from which length on."""
    lengths = list(dict.fromkeys(row.length for row in rows))
    by_length = {
        length: {r.implementation: getattr(r, direction) for r in rows if r.length == length} for length in lengths
    }
    yardstick = rows[0].implementation
    winners = {length: _quickest(costs) for length, costs in by_length.items()}
    parts = []
    for names, group in groupby(lengths, key=lambda length: winners[length]):
        at = list(group)
        factors = [1 / by_length[length][names[0]].ratio[0] for length in at]
        span = " to ".join(dict.fromkeys(f"{factor:.1f}" for factor in (min(factors), max(factors))))
        by = "" if yardstick in names else f", {span} times as quick as {yardstick}"
        lengths_in_words = ", ".join(map(str, at))
        if len(names) > TIED:
            parts.append(f"too close to tell at {lengths_in_words}")
        else:
            parts.append(f"{' and '.join(names)} at {lengths_in_words}{by}")
    yield f"Quickest in {'a forward pass' if direction == 'forward' else 'training'}: {'; '.join(parts)}."
    pays = {}
    for name in by_length[lengths[0]]:
        # Quicker from some length on: in at least three rounds of four, at this length and all that are longer.
        quicker = [length for length in lengths if all(by_length[k][name].ratio[2] < 1 for k in lengths if k >= length)]
        if name != yardstick and not name.startswith(PYTORCH) and quicker:
            pays[name] = quicker[0]
    if pays:
        listed = ", ".join(f"{name} from {length} on" for name, length in pays.items())
        yield f"In at least three rounds of four quicker than {yardstick}: {listed}."
    else:
        yield f"Of what is not PyTorch's own, nothing is quicker than {yardstick} at the greatest length."


def _quickest(costs: Mapping[str, Cost]) -> tuple[str, ...]:
    """The quickest, and those that were as quick in a quarter of the rounds."""
    best = min(costs, key=lambda name: costs[name].ratio[0])
    limit = costs[best].ratio[2]
    return (best, *(name for name, each in costs.items() if name != best and each.ratio[1] <= limit))


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write every number that was measured, one line for each implementation and length.

    Raises:
        BadInput: the file cannot be written.
    """
    columns = ["length", "implementation"]
    for direction in DIRECTIONS:
        columns += [
            f"{direction}_{what}" for what in ("seconds", "scatter", "ratio", "ratio_low", "ratio_high", "bytes")
        ]
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*columns, "largest_difference"])
            for row in rows:
                costs = [(c.seconds, c.scatter, *c.ratio, c.bytes) for c in (row.forward, row.training)]
                writer.writerow([row.length, row.implementation, *costs[0], *costs[1], row.largest_difference])
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}; name another file") from None
