"""`cs336 flow`: how gradients flow through the student's attention, as a table and a figure."""

from collections.abc import Iterator
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from cs336_kit.engine.assignment import find_root
from cs336_kit.lab.gradient_flow import Attention, Flow, gradient_norms, saturation
from cs336_kit.lab.output_file import check_output
from cs336_kit.lab.student import Student

WIDTHS = (1, 4, 16, 64, 256, 1024)
NOTHING = 1e-6  # what rounding leaves of a gradient that is 0


@click.command()
@click.option("--length", default=8, show_default=True, type=click.IntRange(2, 64), help="How many positions.")
@click.option("--d-k", default=64, show_default=True, type=click.IntRange(1), help="How long queries and keys are.")
@click.option("--mask", default="causal", show_default=True, type=click.Choice(["causal", "padding"]))
@click.option("--seed", default=0, show_default=True)
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="A figure, .png or .svg.")
def flow(length: int, d_k: int, mask: str, seed: int, output: Path | None) -> None:
    """Show how gradients flow through your attention.

    How large they are at each position, what a mask cuts, and how large scores stop them.
    """
    if output:
        check_output(output, [".png", ".svg"])
    student = Student(find_root(Path.cwd()))
    with student.in_words():
        measured = _measure(student.adapters.run_scaled_dot_product_attention, length, d_k, mask, seed)
    console = Console(highlight=False)
    console.print(_norms_table(measured), "", *_cut(measured), "", _saturation_table(measured), sep="\n")
    if output:
        from cs336_kit.lab.flow_figure import write_figure

        write_figure(output, measured)
        click.echo(f"\n{output} is written")


def _measure(attention: Attention, length: int, d_k: int, mask: str, seed: int) -> Flow:
    import torch

    visible = torch.ones(length, length, dtype=torch.bool)
    if mask == "causal":
        visible = visible.tril()
    else:
        visible[:, -(length // 4 or 1) :] = False
    norms = [gradient_norms(attention, length, d_k, m, seed) for m in (None, visible)]
    by_width = {
        width: [saturation(attention, length, width, scaled, seed) for scaled in (True, False)] for width in WIDTHS
    }
    return Flow(mask, visible, norms, by_width)


def _norms_table(measured: Flow) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, title="Norms of the gradients of Q, K and V", title_justify="left")
    table.add_column("position", justify="right")
    for mask in ("", f", {measured.mask}"):
        for name in "QKV":
            table.add_column(f"{name}{mask}", justify="right")
    for position in range(len(measured.visible)):
        norms = (f"{by_name[name][position]:.3f}" for by_name in measured.norms for name in "QKV")
        table.add_row(str(position), *norms)
    return table


def _cut(measured: Flow) -> Iterator[str]:
    """What the mask does, in words."""
    visible, (_, masked) = measured.visible, measured.norms
    hidden = int((~visible).sum())
    share = f"{hidden} of {visible.numel()} pairs of a query and a key ({hidden / visible.numel():.0%})"
    yield f"The {measured.mask} mask hides {share}."
    for name, why in (
        ("Q", "where one key is left, its weight is 1 whatever its score is"),
        ("K", "no query sees these keys, or a query that sees only one key"),
        ("V", "no query sees these values"),
    ):
        dry = [position for position, norm in enumerate(masked[name].tolist()) if norm < NOTHING]
        if dry:
            yield f"No gradient reaches {name} at {', '.join(map(str, dry))}: {why}."


def _saturation_table(measured: Flow) -> Table:
    title = "Saturation: q · k divided by √d_k, and not divided"
    table = Table(box=SIMPLE_HEAD, show_edge=False, title=title, title_justify="left")
    columns = ("d_k", "largest weight", "not divided", "gradient of the scores", "not divided")
    for column in columns:
        table.add_column(column, justify="right")
    for width, (divided, plain) in measured.saturation.items():
        numbers = (divided.largest_weight, plain.largest_weight, divided.gradient, plain.gradient)
        table.add_row(str(width), *(f"{number:.3f}" for number in numbers))
    return table
