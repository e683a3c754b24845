"""The student's attention beside PyTorch's, on ten random inputs."""

from collections.abc import Callable

import click
import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text
from torch import Tensor

from lab.attention import Attention, make_call, set_beside_pytorch
from whichline.engine.case import Case
from whichline.engine.compare import listed
from whichline.engine.result import Check
from whichline.engine.silence import silence
from whichline.lab.diagnosis import diagnose

INPUTS = (*("no mask", "causal mask", "random mask") * 2, "empty row", "large scores", "float16", "shared K and V")
LARGE = {"large scores": 10.0, "float16": 100.0}  # exp() of these overflows in float32, these themselves in float16


def compare(seed: int = 0, *, attention: Callable[..., Tensor] | None = None) -> None:
    """Compare your attention, or this one, with PyTorch's on ten random inputs, as `cs336 compare` does."""
    Console(highlight=False).print(Group(*compare_with_pytorch(Attention(attention), seed)[1]))


def compare_with_pytorch(student: Attention, seed: int) -> tuple[bool, list[RenderableType]]:
    """Call both on ten random inputs of different shapes, masks and dtypes: do they agree, and if not, why?"""
    generator = torch.Generator().manual_seed(seed)
    cases = [_draw_input(name, generator) for name in INPUTS]
    diagnosis = diagnose(student, cases)
    table = Table("input", "Q", "K", "V", "off by", "", box=SIMPLE_HEAD, show_edge=False)
    for case, result in zip(cases, diagnosis.results, strict=True):
        shapes = ("×".join(map(str, x.shape)) for x in (case.Q, case.K, case.V))
        table.add_row(case.name, *shapes, _measure_error(student, case), "differs" if result.is_wrong else "")
    if not (wrong := diagnosis.wrong):
        agrees = f"\nOn all {len(cases)} inputs your attention agrees with PyTorch's, gradients included."
        return True, [table, Text(agrees)]
    which = f": {listed(dict.fromkeys(result.test for result in wrong))}" if len(wrong) < len(cases) else ""
    said = f"On {len(wrong)} of {len(cases)} inputs your attention differs from PyTorch's{which}."
    if all(result.check is Check.GRADIENT for result in wrong):
        said += " They differ in the gradients alone."
    return False, [table, Text(f"\n{said}\n"), *diagnosis.describe()]


def _draw_input(name: str, generator: torch.Generator) -> Case:
    queries, keys, d_k, d_v, dimensions = torch.randint(2, 17, (5,), generator=generator).tolist()
    batch = (2, 3)[: 2 if name == "shared K and V" else dimensions % 3]
    of_keys = (*batch[:-1], 1) if name == "shared K and V" else batch
    sizes = ((*batch, queries, d_k), (*of_keys, keys, d_k), (*of_keys, keys, d_v), (*batch, queries, d_v))
    Q, K, V, cotangent = (torch.randn(size, generator=generator) for size in sizes)
    mask = None
    if name == "causal mask":
        mask = torch.ones(queries, keys, dtype=torch.bool).tril()
    elif name in ("random mask", "empty row"):
        mask = torch.rand(*batch, queries, keys, generator=generator) < 0.6
        mask[..., 0] = True
        mask[..., 0, :] &= name != "empty row"
    elif name in LARGE:  # whole numbers, which are not rounded
        Q, K = (LARGE[name] * torch.randint(-3, 4, x.shape, generator=generator) for x in (Q, K))
    if name == "float16":
        cotangent = cotangent / LARGE[name]  # a gradient of Q has K as a factor
        Q, K, V, cotangent = Q.half(), K.half(), V.half(), cotangent.half()
    return set_beside_pytorch(make_call(name, {"Q": Q, "K": K, "V": V, "mask": mask}), cotangent)


def _measure_error(student: Attention, case: Case) -> str:
    try:
        with silence():
            answer = student.attention(case.Q, case.K, case.V, case.mask)
    except click.ClickException:
        return "fails"
    return f"{(answer - case.expected['answer']).abs().max():.0e}"
