"""Time and memory of the student's attention next to PyTorch's own: as a table, in words, and as a plot."""

import csv
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cs336_kit.lab.bad_input import reject_unwritable
from cs336_kit.lab.measurement import DIRECTIONS, Cost, Row
from cs336_kit.lab.view import make_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKERS = "os^vDPX*hp"
# Times whose quartiles are further than this from their median, in terms of it, rank nothing.
SCATTERED = 0.25


def describe_rows(rows: Sequence[Row]) -> Iterator[RenderableType]:
    """A table for each length; then in words what is quicker than the first, by how much and from which length on."""
    for length, group in groupby(rows, key=lambda row: row.length):
        yield ""
        yield _tabulate(length, list(group))
    ratio = f"of the time to that of {rows[0].implementation} in the same round"
    yield Text(f"\nratio: {ratio}, median ± half the distance of its quartiles", "dim")
    yield ""
    for direction in DIRECTIONS:
        yield Text(_rank(rows, direction))
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
    columns = ("forward\nms", "\nratio", "\nMiB", "training\nms", "\nratio", "\nMiB", "differs\nby")
    cells = (
        (row.implementation, *_format_cost(row.forward), *_format_cost(row.training), f"{row.largest_difference:.0e}")
        for row in rows
    )
    return make_table((f"length {length}", *columns), cells)


def _format_cost(found: Cost) -> tuple[str, str, str]:
    middle, low, high = found.ratio
    memory = "?" if found.bytes is None else _format(found.bytes / 2**20)
    return _format(found.seconds * 1e3), f"{middle:.2f}±{(high - low) / 2:.2f}", memory


def _format(x: float) -> str:
    return f"{x:.1f}" if x < 100 else f"{x:.0f}"


def _rank(rows: Sequence[Row], direction: str) -> str:
    """Say what is quicker than the first, from which length on, and by how much."""
    yardstick, greatest = rows[0].implementation, rows[-1].length
    ratios: dict[str, dict[int, tuple[float, float, float]]] = {}
    for row in rows:
        ratios.setdefault(row.implementation, {})[row.length] = getattr(row, direction).ratio
    quicker = {}
    for name, by_length in ratios.items():
        # In at least three rounds of four, at this length and all that are longer.
        lengths = [k for k in by_length if all(high < 1 for n, (_, _, high) in by_length.items() if n >= k)]
        if lengths:
            quicker[name] = 1 / by_length[greatest][0], lengths[0]
    what = "a forward pass" if direction == "forward" else "training"
    if not quicker:
        return f"In {what}, nothing is quicker than {yardstick} at {greatest}."
    ranked = sorted(quicker.items(), key=lambda item: item[1], reverse=True)
    listed = ", ".join(f"{name} from {first} on ({factor:.1f} times at {greatest})" for name, (factor, first) in ranked)
    return f"In {what}, in at least three rounds of four quicker than {yardstick}: {listed}."


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write every number that was measured, one line for each implementation and length.

    Raises:
        BadInput: the file cannot be written.
    """
    names = ("seconds", "scatter", "ratio", "ratio_low", "ratio_high", "bytes")
    columns = [f"{direction}_{name}" for direction in DIRECTIONS for name in names]
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
