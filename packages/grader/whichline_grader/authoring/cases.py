"""Recipes of cases."""

from collections.abc import Callable, Mapping
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
    call: str, draws: Mapping[str, Mapping[str, Callable[[Generator], Inputs]]], gradients: tuple[str, ...] = ()
) -> list[CaseSpec]:
    """One for each of `draws`, by folder and name. Gradients are stored in the folders that are named like it."""
    return [
        CaseSpec(f"{folder}/{name}", call, draw, gradients if folder.endswith("-gradients") else ())
        for folder, named in draws.items()
        for name, draw in named.items()
    ]
