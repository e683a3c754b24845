"""`cs336 bench`: time and memory of the student's attention, next to PyTorch's own."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from itertools import product
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from cs336_kit.engine.assignment import find_root
from cs336_kit.lab.bad_input import BadInput
from cs336_kit.lab.contenders import labs, pytorchs, reference, students
from cs336_kit.lab.measurement import DIRECTIONS, LeftOut, Row, inputs, median_seconds, peak_memory
from cs336_kit.lab.output_file import check_output
from cs336_kit.lab.student import Student

OWN = "PyTorch, "
SUFFIXES = (".csv", ".png", ".svg")


@click.command()
@click.option(
    "--length",
    "lengths",
    multiple=True,
    default=[128, 256, 512],
    show_default=True,
    type=click.IntRange(1),
    help="How many queries and keys; may be given again.",
)
@click.option("--compile", "compiled", is_flag=True, help="Add torch.compile, which takes minutes.")
@click.option(
    "-o",
    "--output",
    "outputs",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A .csv table, or a .png or .svg plot; may be given again.",
)
def bench(lengths: tuple[int, ...], compiled: bool, outputs: tuple[Path, ...]) -> None:
    """Measure time and memory of your attention, next to PyTorch's.

    With a causal mask, 4 heads of 64 features, in float32. Training is forward and backward through 4 layers.
    """
    for output in outputs:
        check_output(output, SUFFIXES)
    console = Console(highlight=False)
    rows = _measure(Student(find_root(Path.cwd())), sorted(set(lengths)), compiled, console)
    console.print(_table(rows))
    for output in outputs:
        if output.suffix == ".csv":
            _write_csv(output, rows)
        else:
            from cs336_kit.lab.bench_figure import write_figure

            write_figure(output, rows)
        click.echo(f"{output} is written")


def _measure(student: Student, lengths: Sequence[int], compiled: bool, console: Console) -> list[Row]:
    contenders = students(student.adapters, compiled) | labs() | pytorchs()
    peaks: dict[tuple[str, int, str], int | None] = {}
    left_out: dict[str, str] = {}
    # A thread that draws would be in the way of a fork.
    with Progress(console=console, transient=True, auto_refresh=False, disable=not console.is_terminal) as bar:
        # Memory comes first: it is measured in forks of this process, which may not have computed anything.
        for name, attention in bar.track(contenders.items(), description="Memory"):
            bar.refresh()
            try:
                for length, direction in product(lengths, DIRECTIONS):
                    peaks[name, length, direction] = peak_memory(attention, direction, length, student.in_words)
            except LeftOut as reason:
                left_out[name] = str(reason)
        contenders = {name: attention for name, attention in contenders.items() if name not in left_out}
        seconds: dict[tuple[str, int, str], float] = {}
        for length, direction in bar.track(list(product(lengths, DIRECTIONS)), description="Time"):
            bar.refresh()
            calls = {name: DIRECTIONS[direction](attention, length) for name, attention in contenders.items()}
            for name, median in median_seconds(calls).items():
                seconds[name, length, direction] = median
    for line in _notes(list(contenders), left_out, compiled):
        click.echo(line)
    return [
        Row(
            length,
            name,
            seconds[name, length, "forward"],
            peaks[name, length, "forward"],
            seconds[name, length, "training"],
            peaks[name, length, "training"],
            (attention(*inputs(length)) - reference(*inputs(length))).abs().max().item(),
        )
        for length in lengths
        for name, attention in contenders.items()
    ]


def _notes(measured: Sequence[str], left_out: Mapping[str, str], compiled: bool) -> Iterator[str]:
    """What this machine is and has, and what is missing from the table."""
    import torch

    yield f"PyTorch {torch.__version__}, {torch.get_num_threads()} thread(s)"
    has, lacks = ([name[len(OWN) :] for name in names if name.startswith(OWN)] for names in (measured, left_out))
    yield f"PyTorch's own attention has these back ends here: {', '.join(has)}; not here: {', '.join(lacks)}"
    for name, reason in left_out.items():
        if not name.startswith(OWN):
            yield f"{name} is left out: {reason}"
    if not compiled:
        yield "torch.compile is left out: --compile adds it"


def _table(rows: Sequence[Row]) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False)
    table.add_column("length", justify="right", vertical="bottom")
    table.add_column("", no_wrap=True)
    for column in ("forward\nms", "forward\nMiB", "training\nms", "training\nMiB", "largest\ndifference"):
        table.add_column(column, justify="right")
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        table.add_row(
            str(row.length),
            row.implementation,
            f"{row.forward_seconds * 1e3:.1f}",
            _mebibytes(row.forward_bytes),
            f"{row.training_seconds * 1e3:.1f}",
            _mebibytes(row.training_bytes),
            f"{row.largest_difference:.0e}",
            end_section=following is not None and following.length != row.length,
        )
    return table


def _mebibytes(count: int | None) -> str:
    return "?" if count is None else f"{count / 2**20:.1f}"


def _write_csv(path: Path, rows: Sequence[Row]) -> None:
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(row) for row in rows)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}; name another file") from None
