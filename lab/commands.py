"""The lab's commands. Each imports what it needs when it runs: help does without torch."""

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import click

from whichline.lab import BadInput
from whichline.lab.commands import find_case, list_followed, print_parts

FILE = click.Path(path_type=Path)


@click.command()
@click.option("--length", "lengths", multiple=True, default=[128, 256, 512], show_default=True, type=click.IntRange(1))
@click.option("--device", default="cpu", show_default=True, type=click.Choice(["cpu", "cuda"]))
@click.option("--compile", "is_compiled", is_flag=True, help="Add yours after torch.compile; it takes a minute more.")
def bench(lengths: tuple[int, ...], device: str, is_compiled: bool) -> None:
    """Measure time and memory of your attention, next to PyTorch's.

    With a causal mask, 4 heads of 64 features. --length may be given again.
    """
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise BadInput("PyTorch finds no GPU here (torch.cuda.is_available() is False): leave --device out")
    from lab.attention import Attention
    from lab.bench import measure
    from whichline.engine.annotations import without_checks

    with without_checks():  # they take time
        print_parts(measure(Attention(), sorted(set(lengths)), device, is_compiled))


@click.command()
@click.option("--seed", default=0, show_default=True)
def compare(seed: int) -> None:
    """Compare your attention with PyTorch's on ten random inputs.

    Output and gradients. The exit status is 0 if all agree, 1 if not.
    """
    from lab.attention import Attention
    from lab.comparison import compare_with_pytorch

    agree, parts = compare_with_pytorch(Attention(), seed)
    print_parts(parts)
    if not agree:
        raise SystemExit(1)


def of_one_call(command: Callable[..., None]) -> Callable[..., None]:
    """Arguments that name a call of attention."""
    what = "A stored case, such as attention/3d-causal, or a folder of them."
    command = click.option("--case", metavar="NAME", help=what)(command)
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
    if call := _find_call("debug", list_followed, **named):
        from lab.attention import Attention, report_attention

        print_parts(report_attention(call, Attention(), values))


@click.command()
@of_one_call
@click.option("-o", "--output", metavar="FILE", type=FILE, help="A figure, such as weights.png.")
def show(output: Path | None, **named: Any) -> None:
    """Draw the weights of your attention in one call, head by head; alone, list the cases.

    FILE holds the tensors of a call, as for `debug`. The weights are what your attention gives when the values
    are the identity matrix.
    """
    if not (call := _find_call("show", lambda: ["run_scaled_dot_product_attention"], **named)):
        return
    from lab.attention import Attention, explain_misfit
    from lab.heatmap import heatmap

    if misfit := explain_misfit(call):
        raise BadInput(misfit)
    weights = Attention().weights(call.Q, call.K, call.mask)
    heads = list(product(*map(range, weights.shape[:-2])))
    masks = None if call.mask is None else [call.mask.expand(weights.shape)[head] for head in heads]
    titles = [f"weights at {[*head]}" if head else "weights" for head in heads]
    view = heatmap([weights[head] for head in heads], mask=masks, titles=titles)
    if output:
        view.save(output)
        click.echo(f"{output} is written")
    else:
        print_parts([view])


def _find_call(command: str, list_calls: Callable[[], Sequence[str]], file: Path | None, case: str | None) -> Any:
    """Read the call that is asked for; if none is, list the stored cases of some adapters, and how to name one."""
    if file and case:
        raise BadInput("give either FILE or --case NAME")
    if not file:
        return find_case(command, list_calls(), case)
    from lab.attention import read_call

    return read_call(file)
