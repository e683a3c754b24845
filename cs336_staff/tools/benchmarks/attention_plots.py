"""The tables and the two plots of `cs336_staff/docs/blockwise.md`, from what `benchmarks.attention` measured.

    uv run python -m cs336_staff.tools.benchmarks.attention_plots results/attention.json cs336_staff/docs

prints the tables in Markdown and writes blockwise_time.png and blockwise_memory.png.
"""

import json
from pathlib import Path

import click
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

MEBIBYTE = 2**20
DIRECTIONS = {"forward": "Forward", "both": "Forward and backward"}


@click.command()
@click.argument("measured", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
def main(measured: Path, folder: Path) -> None:
    """Print the tables of what was MEASURED and write the plots into FOLDER."""
    results = json.loads(measured.read_text())
    times = [row for row in results["rows"] if row["kind"] == "time"]
    memory = [row for row in results["rows"] if row["kind"] == "memory"]
    click.echo(f"{results['machine']}\n")
    for direction, title in DIRECTIONS.items():
        click.echo(f"{title}:\n")
        click.echo(time_table([row for row in times if row["direction"] == direction]))
    click.echo(memory_table(memory))
    plot_time([row for row in times if row["direction"] == "forward"], folder / "blockwise_time.png")
    plot_memory([row for row in memory if row["direction"] == "forward"], folder / "blockwise_memory.png")


def time_table(rows: list[dict]) -> str:
    """Milliseconds of the fused kernel, and the others as a multiple of it; in brackets what was disturbed."""
    lengths = sorted({row["length"] for row in rows})
    lines = [["mask", "implementation", *map(str, lengths)], ["---"] * 2 + ["--:"] * len(lengths)]
    for mask, what in dict.fromkeys((row["mask"], row["what"]) for row in rows):
        found = {row["length"]: row for row in rows if (row["mask"], row["what"]) == (mask, what)}
        lines.append([mask, what, *(_shown(found[n]) if n in found else "" for n in lengths)])
    return _markdown(lines)


def _shown(row: dict) -> str:
    ratio = row["ratio"]
    text = f"{row['seconds'] * 1e3:.2f} ms" if row["what"] == "fused" else f"{ratio:.{2 if ratio >= 0.2 else 3}f}×"
    return text if row["quiet"] else f"({text})"


def memory_table(rows: list[dict]) -> str:
    """MiB by length, and the exponent with which they grow."""
    lengths = sorted({row["length"] for row in rows})
    lines = [["MiB", *map(str, lengths), "grows with"], ["---"] + ["--:"] * len(lengths) + ["---"]]
    for direction, what in dict.fromkeys((row["direction"], row["what"]) for row in rows):
        found = {row["length"]: row["bytes"] for row in rows if (row["direction"], row["what"]) == (direction, what)}
        sizes = (f"{found[n] / MEBIBYTE:.1f}" if n in found else "" for n in lengths)
        lines.append([f"{direction}: {what}", *sizes, f"length^{exponent(found):.2f}"])
    return _markdown(lines)


def exponent(sizes: dict[int, int]) -> float:
    """The slope of log(bytes) over log(length): 1 is linear growth, 2 quadratic."""
    lengths, sizes_ = np.log(np.array(list(sizes.items()), dtype=float)).T
    return float(np.polyfit(lengths, sizes_, 1)[0])


def _markdown(lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def plot_time(rows: list[dict], path: Path) -> None:
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for mask in dict.fromkeys(row["mask"] for row in rows):
        found = [row for row in rows if (row["mask"], row["what"]) == (mask, "blockwise")]
        axes.plot([row["length"] for row in found], [row["ratio"] for row in found], marker="o", label=mask)
    axes.axhline(1, color="grey", linestyle="--")
    axes.set_title("Blockwise attention, forward")
    axes.set_ylabel("time / time of PyTorch's fused kernel")
    _logarithmic(axes, sorted({row["length"] for row in rows}), [0.05, 0.1, 0.2, 0.5, 1, 2])
    figure.savefig(path, dpi=120)


def plot_memory(rows: list[dict], path: Path) -> None:
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for what in dict.fromkeys(row["what"] for row in rows):
        found = {row["length"]: row["bytes"] / MEBIBYTE for row in rows if row["what"] == what}
        axes.plot(list(found), list(found.values()), marker="o", label=what)
    axes.set_title("Peak memory of one causal forward pass, its mask included")
    axes.set_ylabel("MiB above what was there before")
    _logarithmic(axes, sorted({row["length"] for row in rows}), [1, 10, 100, 1000])
    figure.savefig(path, dpi=120)


def _logarithmic(axes: Axes, lengths: list[int], heights: list[float]) -> None:
    axes.set(xscale="log", yscale="log", xlabel="queries and keys")
    axes.set_xticks(lengths, [str(n) for n in lengths])
    axes.set_yticks(heights, [f"{h:g}" for h in heights])
    axes.minorticks_off()
    axes.legend()


if __name__ == "__main__":
    main()
