"""The table and the two plots of `cs336_staff/docs/blockwise.md`, from what `benchmarks.attention` measured.

    uv run python -m cs336_staff.benchmarks.attention_plots results/attention.json cs336_staff/docs

prints the table in Markdown and writes blockwise_time.png and blockwise_memory.png.
"""

import json
from pathlib import Path

import click
import numpy as np
from matplotlib import pyplot as plt

MEBIBYTE = 2**20


@click.command()
@click.argument("measured", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
def main(measured: Path, folder: Path) -> None:
    """Print the table of what was MEASURED and write the plots into FOLDER."""
    results = json.loads(measured.read_text())
    times = [row for row in results["rows"] if row["kind"] == "time"]
    memory = [row for row in results["rows"] if row["kind"] == "memory"]
    click.echo(f"{results['machine']}\n")
    for direction in ("forward", "both"):
        click.echo(table([row for row in times if row["direction"] == direction]))
    plot_time([row for row in times if row["direction"] == "forward"], folder / "blockwise_time.png")
    plot_memory([row for row in memory if row["direction"] == "forward"], folder / "blockwise_memory.png")
    for (direction, what), exponent in exponents(memory).items():
        click.echo(f"memory, {direction}, {what}: grows with length^{exponent:.2f}")


def table(rows: list[dict]) -> str:
    """Milliseconds of the fused kernel, and the others as a multiple of it."""
    lengths = sorted({row["length"] for row in rows})
    lines = [["mask", "implementation", *map(str, lengths)], ["---"] * 2 + ["--:"] * len(lengths)]
    for mask, what in dict.fromkeys((row["mask"], row["what"]) for row in rows):
        found = {row["length"]: row for row in rows if row["mask"] == mask and row["what"] == what}
        shown = (
            (lambda row: f"{row['seconds'] * 1e3:.2f} ms") if what == "fused" else lambda row: f"{row['ratio']:.3g}×"
        )
        lines.append([mask, what, *(shown(found[n]) if n in found else "" for n in lengths)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def exponents(rows: list[dict]) -> dict[tuple[str, str], float]:
    """The slope of log(bytes) over log(length): 1 is linear growth, 2 quadratic."""
    slopes = {}
    for key in dict.fromkeys((row["direction"], row["what"]) for row in rows):
        points = [(row["length"], row["bytes"]) for row in rows if (row["direction"], row["what"]) == key]
        lengths, sizes = np.log(np.array(points, dtype=float)).T
        slopes[key] = float(np.polyfit(lengths, sizes, 1)[0])
    return slopes


def plot_time(rows: list[dict], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for mask in dict.fromkeys(row["mask"] for row in rows):
        found = [row for row in rows if row["mask"] == mask and row["what"] == "blockwise"]
        axes.plot([row["length"] for row in found], [row["ratio"] for row in found], marker="o", label=mask)
    axes.axhline(1, color="grey", linestyle="--")
    axes.set(xscale="log", yscale="log", xlabel="queries and keys", ylabel="blockwise / fused")
    axes.set_title("Forward pass: time as a multiple of the fused kernel's with the same mask")
    lengths = sorted({row["length"] for row in rows})
    axes.set_xticks(lengths, map(str, lengths), minor=False)
    axes.set_yticks([0.1, 0.2, 0.5, 1, 2], ["0.1", "0.2", "0.5", "1", "2"])
    axes.minorticks_off()
    axes.legend()
    figure.savefig(path, dpi=120)


def plot_memory(rows: list[dict], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    slopes = exponents(rows)
    for what in dict.fromkeys(row["what"] for row in rows):
        found = [row for row in rows if row["what"] == what]
        label = f"{what}: grows with length^{slopes['forward', what]:.2f}"
        axes.plot([row["length"] for row in found], [row["bytes"] / MEBIBYTE for row in found], marker="o", label=label)
    axes.set(xscale="log", yscale="log", xlabel="queries and keys", ylabel="peak above what was there before (MiB)")
    axes.set_title("Peak memory of one causal forward pass, its mask included")
    lengths = sorted({row["length"] for row in rows})
    axes.set_xticks(lengths, map(str, lengths), minor=False)
    axes.minorticks_off()
    figure.legend(loc="outside lower center", ncols=2)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
