"""Recipes of cases."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator

Inputs = dict[str, Any]

HALF_PRECISION = {"float16": torch.float16, "bfloat16": torch.bfloat16}
FULL_PRECISION = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class CaseSpec:
    """The recipe of one case.

    Args:
        name: folder and file name of the case.
        call: the adapter that is called.
        draw: the arguments of the adapter, drawn from a generator.
        gradients: the arguments whose gradients are stored too.
    """

    name: str
    call: str
    draw: Callable[[Generator], Inputs]
    gradients: tuple[str, ...] = ()


def specs(
    folder: str, call: str, draws: dict[str, Callable[[Generator], Inputs]], gradients: tuple[str, ...] = ()
) -> list[CaseSpec]:
    """One for each of `draws`, which are named; all in one folder."""
    return [CaseSpec(f"{folder}/{name}", call, draw, gradients) for name, draw in draws.items()]
