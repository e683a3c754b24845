"""The plot of `cs336 bench`."""

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from cs336_kit.lab.measurement import Row

MARKERS = "os^vDPX*hp"


def write_figure(path: Path, rows: Sequence[Row]) -> None:
    """Draw time and memory over the length, of the forward pass and of training."""
    lengths = sorted({row.length for row in rows})
    panels: dict[str, Callable[[Row], float]] = {
        "time of a forward pass, ms": lambda row: row.forward_seconds * 1e3,
        "time of training, ms": lambda row: row.training_seconds * 1e3,
    }
    if any(row.training_bytes for row in rows):
        panels["memory of a forward pass, MiB"] = lambda row: _mebibytes(row.forward_bytes)
        panels["memory of training, MiB"] = lambda row: _mebibytes(row.training_bytes)
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
    # Text of an SVG stays text.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "cs336"}):
        figure.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)


def _mebibytes(count: int | None) -> float:
    """A gap where less than a page was measured: 0 has no logarithm."""
    return count / 2**20 if count else float("nan")
