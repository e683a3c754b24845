"""Time and memory of the student's attention next to PyTorch's own: as a table, in words, and as a plot."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cs336_kit.lab.bad_input import reject_unwritable
from cs336_kit.lab.contenders import PYTORCH
from cs336_kit.lab.measurement import DIRECTIONS, Cost, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKERS = "os^vDPX*hp"
# Times whose quartiles are further than this from their median, in terms of it, rank nothing.
SCATTERED = 0.25
TIED = 3  # more that are as quick as each other are not named


def describe_rows(rows: Sequence[Row]) -> Iterator[RenderableType]:
    """A table for each length; then in words which is quickest, by how much and from which length."""
    for length, group in groupby(rows, key=lambda row: row.length):
        yield ""
        yield _tabulate(length, list(group))
    ratio = f"of the time to that of {rows[0].implementation} in the same round"
    yield Text(f"\nratio: {ratio}, median ± half the distance of its quartiles", "dim")
    yield ""
    for direction in DIRECTIONS:
        yield from map(Text, _rank(rows, direction))
    yield Text(
        "PyTorch with mask gets the mask as a matrix (attn_mask=mask), as yours does. PyTorch is_causal is told "
        "is_causal=True instead, so it may skip what the mask hides. Linear attention is another function, so its "
        "difference is not rounding: its weights are flatter, and it knows no mask but the causal one."
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


def _tabulate(length: int, rows: Sequence[Row]) -> Table:
    """Of one length; 80 columns are enough."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    table.add_column(f"length {length}", no_wrap=True, vertical="bottom")
    for column in ("forward\nms", "\nratio", "\nMiB", "training\nms", "\nratio", "\nMiB", "differs\nby"):
        table.add_column(column, justify="right")
    for row in rows:
        cells = (cell for each in (row.forward, row.training) for cell in _format_cost(each))
        table.add_row(row.implementation, *cells, f"{row.largest_difference:.0e}")
    return table


def _format_cost(found: Cost) -> tuple[str, str, str]:
    middle, low, high = found.ratio
    memory = "?" if found.bytes is None else _format(found.bytes / 2**20)
    return _format(found.seconds * 1e3), f"{middle:.2f}±{(high - low) / 2:.2f}", memory


def _format(x: float) -> str:
    return f"{x:.1f}" if x < 100 else f"{x:.0f}"


def _rank(rows: Sequence[Row], direction: str) -> Iterator[str]:
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
        named, by = (" and ".join(names), by) if len(names) <= TIED else ("too close to tell", "")
        parts.append(f"{named} at {', '.join(map(str, at))}{by}")
    yield f"Quickest in {'a forward pass' if direction == 'forward' else 'training'}: {'; '.join(parts)}."
    pays = {}
    for name in by_length[lengths[0]]:
        # Quicker from some length on: in at least three rounds of four, at this length and all that are longer.
        quicker = [length for length in lengths if all(by_length[k][name].ratio[2] < 1 for k in lengths if k >= length)]
        if name != yardstick and name not in PYTORCH and quicker:
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
    measured = ("seconds", "scatter", "ratio", "ratio_low", "ratio_high", "bytes")
    columns = [f"{direction}_{what}" for direction in DIRECTIONS for what in measured]
    with reject_unwritable(path), path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["length", "implementation", *columns, "largest_difference"])
        for row in rows:
            costs = [x for c in (row.forward, row.training) for x in (c.seconds, c.scatter, *c.ratio, c.bytes)]
            writer.writerow([row.length, row.implementation, *costs, row.largest_difference])


def draw_rows(rows: Sequence[Row]) -> "Figure":
    """Draw time and memory over the length, of the forward pass and of training."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    lengths = sorted({row.length for row in rows})
    panels: dict[str, Callable[[Row], float]] = {
        "time of a forward pass, ms": lambda row: row.forward.seconds * 1e3,
        "time of training, ms": lambda row: row.training.seconds * 1e3,
    }
    if any(row.training.bytes for row in rows):
        panels["memory of a forward pass, MiB"] = lambda row: _count_mebibytes(row.forward.bytes)
        panels["memory of training, MiB"] = lambda row: _count_mebibytes(row.training.bytes)
    figure = Figure(figsize=(10, 0.5 + 3.2 * len(panels) / 2), layout="constrained")
    grid = figure.subplots(len(panels) // 2, 2, sharex=True, squeeze=False)
    for axes, (title, value) in zip(grid.flat, panels.items(), strict=True):
        for name, marker in zip(dict.fromkeys(row.implementation for row in rows), MARKERS, strict=False):
            of_name = [row for row in rows if row.implementation == name]
            axes.plot([row.length for row in of_name], [value(row) for row in of_name], marker=marker, label=name)
        axes.set_title(title)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(lengths, map(str, lengths))
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    for axes in grid[-1]:
        axes.set_xlabel("length")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside right upper")
    return figure


def _count_mebibytes(count: int | None) -> float:
    """A gap where less than a page was measured: 0 has no logarithm."""
    return count / 2**20 if count else float("nan")
