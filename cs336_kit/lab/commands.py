"""The lab's commands. Each imports what it needs when it runs: help does without torch."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, product
from pathlib import Path
from textwrap import fill
from typing import Any

import click
from rich.console import Console, RenderableType

from cs336_kit.engine.assignment import find_root
from cs336_kit.lab import BadInput

FILE = click.Path(path_type=Path)

MOST_NAMED = 5  # cases of one folder


@click.command()
@click.option("--length", "lengths", multiple=True, default=[128, 256, 512], show_default=True, type=click.IntRange(1))
@click.option("--device", default="cpu", show_default=True, type=click.Choice(["cpu", "cuda"]))
def bench(lengths: tuple[int, ...], device: str) -> None:
    """Measure time and memory of your attention, next to PyTorch's.

    With a causal mask, 4 heads of 64 features. --length may be given again.
    """
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise BadInput("PyTorch finds no GPU here (torch.cuda.is_available() is False): leave --device out")
    from cs336_kit.lab.bench import measure
    from cs336_kit.lab.student import Student

    _print(measure(Student(), sorted(set(lengths)), device))


@click.command()
@click.option("--seed", default=0, show_default=True)
def compare(seed: int) -> None:
    """Compare your attention with PyTorch's on ten random inputs.

    Output and gradients. The exit status is 0 if all agree, 1 if not.
    """
    from cs336_kit.lab.comparison import compare_with_pytorch
    from cs336_kit.lab.student import Student

    agree, parts = compare_with_pytorch(Student(), seed)
    _print(parts)
    if not agree:
        raise SystemExit(1)


def of_one_call(command: Callable[..., None]) -> Callable[..., None]:
    """Arguments that name a call of attention."""
    command = click.option("--case", metavar="NAME", help="A stored case, such as attention/3d-causal.")(command)
    return click.argument("file", required=False, type=FILE)(command)


@click.command()
@of_one_call
@click.option("--values", is_flag=True, help="Show below each line what came out.")
def debug(values: bool, **named: Any) -> None:
    """Mark each line of your code that one call runs; alone, list the cases.

    \b
    ✓ right    ✗ wrong    · computed from something wrong    no mark: not known

    FILE is a call of attention, with tensors named Q, K, V and, if there is one, mask:

    \b
    from safetensors.torch import save_file
    save_file({"Q": Q, "K": K, "V": V, "mask": mask}, "call.safetensors")
    """
    from cs336_kit.engine.assignment import load_problems
    from cs336_kit.engine.room import load_room

    problems = load_problems(find_root(Path.cwd()))
    if call := _find_call("debug", [call for problem in problems for call in load_room(problem).steps], **named):
        from cs336_kit.lab.report import report_call
        from cs336_kit.lab.student import Student

        _print(report_call(call, Student(), values))


@click.command()
@of_one_call
@click.option("-o", "--output", metavar="FILE", type=FILE, help="A figure, such as weights.png.")
def show(output: Path | None, **named: Any) -> None:
    """Draw the weights of your attention in one call, head by head; alone, list the cases.

    FILE holds the tensors of a call, as for `cs336 debug`. The weights are what your attention gives when the values
    are the identity matrix.
    """
    from cs336_kit.lab.student import ADAPTER, Student

    if not (call := _find_call("show", calls=[ADAPTER], **named)):
        return
    from cs336_kit.lab.heatmap import heatmap
    from cs336_kit.lab.report import explain_misfit

    if misfit := explain_misfit(call):
        raise BadInput(misfit)
    weights = Student().weights(call.Q, call.K, call.mask)
    heads = list(product(*map(range, weights.shape[:-2])))
    masks = None if call.mask is None else [call.mask.expand(weights.shape)[head] for head in heads]
    titles = [f"weights at {[*head]}" if head else "weights" for head in heads]
    view = heatmap([weights[head] for head in heads], mask=masks, titles=titles)
    if output:
        view.save(output)
        click.echo(f"{output} is written")
    else:
        _print([view])


def _find_call(command: str, calls: Sequence[str], file: Path | None, case: str | None) -> Any:
    """Read the call that is asked for; if none is, list the stored cases of some adapters, and how to name one."""
    if file and case:
        raise BadInput("give either FILE or --case NAME")
    from cs336_kit.lab.student import list_cases, read_call, read_case

    fixtures = find_root(Path.cwd()) / "fixtures"
    if file:
        return read_call(file)
    if case:
        return read_case(fixtures, case, calls)
    names = list_cases(fixtures, calls)
    folders = groupby(names, key=lambda name: name.partition("/")[0])
    named = ((folder, [name.partition("/")[2] for name in cases]) for folder, cases in folders)
    said = (f"{folder}/ {' '.join(cases[:MOST_NAMED])}{' …' * (len(cases) > MOST_NAMED)}" for folder, cases in named)
    click.echo(fill("   ".join(said), 80, break_on_hyphens=False))
    click.echo(f"\nuv run cs336 {command} --case {names[0]}")


def _print(parts: Iterable[RenderableType]) -> None:
    """Print each part as soon as it is known: what comes before an error of the student's is worth reading."""
    console = Console(highlight=False)
    for part in parts:
        console.print(part)
