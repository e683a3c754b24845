"""The plot of `cs336 bench`."""

from collections.abc import Callable, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from cs336_kit.lab.measurement import Row

MARKERS = "os^vDPX*hp"


def draw_rows(rows: Sequence[Row]) -> Figure:
    """Draw time and memory over the length, of the forward pass and of training."""
    lengths = sorted({row.length for row in rows})
    panels: dict[str, Callable[[Row], float]] = {
        "time of a forward pass, ms": lambda row: row.forward.seconds * 1e3,
        "time of training, ms": lambda row: row.training.seconds * 1e3,
    }
    if any(row.training.bytes for row in rows):
        panels["memory of a forward pass, MiB"] = lambda row: _mebibytes(row.forward.bytes)
        panels["memory of training, MiB"] = lambda row: _mebibytes(row.training.bytes)
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


def _mebibytes(count: int | None) -> float:
    """A gap where less than a page was measured: 0 has no logarithm."""
    return count / 2**20 if count else float("nan")
