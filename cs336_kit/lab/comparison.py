"""The student's attention beside PyTorch's, on random inputs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from cs336_kit.lab.student import Student

INPUTS = 10
TOLERANCE, IN_WORDS = 1e-5, "1e-5"
BATCHES = ((), (2,), (2, 3))
MASKS = ("none", "causal", "random")


@dataclass(frozen=True)
class Difference:
    """On one input, how far the student's numbers are from PyTorch's at most.

    Args:
        batch: the leading dimensions.
        sizes: number of queries, number of keys, d_k, d_v.
        mask: "none", "causal" or "random".
        output: of the output.
        gradient: of the gradients of Q, K and V, for a random gradient of the output.
    """

    batch: tuple[int, ...]
    sizes: tuple[int, ...]
    mask: str
    output: float
    gradient: float

    @property
    def agrees(self) -> bool:
        """Test whether both are small enough to be rounding; NaN is not."""
        return self.output <= TOLERANCE and self.gradient <= TOLERANCE


def compare_with_pytorch(student: Student, seed: int) -> list[Difference]:
    """Call both on ten random inputs of different shapes and masks, in float32.

    Raises:
        click.ClickException: the student's code raises an error, or gives no tensor of the right shape.
    """
    generator = torch.Generator().manual_seed(seed)
    return [_difference(student, BATCHES[i % 3], MASKS[i // 3 % 3], generator) for i in range(INPUTS)]


def _difference(student: Student, batch: tuple[int, ...], mask: str, generator: torch.Generator) -> Difference:
    queries, keys, d_k, d_v = torch.randint(2, 17, (4,), generator=generator).tolist()
    Q, K, V, cotangent = (
        torch.randn(*batch, *size, generator=generator)
        for size in ((queries, d_k), (keys, d_k), (keys, d_v), (queries, d_v))
    )
    visible = None
    if mask == "causal":
        visible = torch.ones(queries, keys, dtype=torch.bool).tril()
    elif mask == "random":
        visible = torch.rand(*batch, queries, keys, generator=generator) < 0.6
        visible[..., 0] = True  # PyTorch's own gives NaN where a query may attend to nothing
    yours, theirs = (
        _output_and_gradients(attention, (Q, K, V), visible, cotangent)
        for attention in (student.differentiable, scaled_dot_product_attention)
    )
    output, *gradients = (float((x - y).abs().max()) for x, y in zip(yours, theirs, strict=True))
    largest = float(torch.tensor(gradients).max())  # which NaN is, too
    return Difference(batch, (queries, keys, d_k, d_v), mask, output, largest)


def _output_and_gradients(attention, tensors: Sequence[Tensor], mask: Tensor | None, cotangent: Tensor) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in tensors]
    output = attention(*leaves, mask)
    if not output.requires_grad:
        return [output, *(torch.full_like(x, torch.nan) for x in leaves)]
    loss = (output * cotangent).sum()  # given a gradient, autograd imports sympy, which takes half a second
    return [output.detach(), *torch.autograd.grad(loss, leaves, materialize_grads=True)]


def comparison_text(differences: Sequence[Difference]) -> Iterator[RenderableType]:
    """A table, and how many agree."""
    table = Table(box=SIMPLE_HEAD, show_edge=False)
    table.add_column("batch")
    for column in ("queries", "keys", "d_k", "d_v", "mask", "output", "gradients", ""):
        table.add_column(column, justify="left" if column == "mask" else "right")
    for each in differences:
        numbers = (f"{each.output:.0e}", f"{each.gradient:.0e}", "" if each.agrees else "→")
        batch = "×".join(map(str, each.batch)) or "none"
        table.add_row(batch, *map(str, each.sizes), each.mask, *numbers)
    yield table
    agree = sum(each.agrees for each in differences)
    yield ""
    if agree == len(differences):
        yield Text(f"On all {agree} inputs your attention is PyTorch's to {IN_WORDS}, gradients included.")
        return
    wrong = [each for each in differences if not each.agrees]
    yield Text(f"{len(wrong)} of {len(differences)} inputs differ by more than {IN_WORDS}{_what_they_share(wrong)}.")
    yield Text("`cs336 check` examines your attention; `cs336 debug` goes through one call step by step.")


def _what_they_share(wrong: Sequence[Difference]) -> str:
    """Say what all inputs that differ have in common, where that is a clue."""
    if all(each.output <= TOLERANCE for each in wrong):
        return ", all in the gradients alone"
    if all(each.mask != "none" for each in wrong):
        return ", all with a mask"
    if all(each.batch for each in wrong):
        return ", all with leading dimensions"
    return ""
