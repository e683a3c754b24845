"""Recipes for test cases."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from whichline.engine.assignment import SuiteError
from whichline.engine.compare import add_article

Inputs = dict[str, Any]

HALF_PRECISION = {"float16": torch.float16, "bfloat16": torch.bfloat16}
FULL_PRECISION = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class CaseSpec:
    """The recipe for one test case."""

    name: str  # folder and file name of the case
    call: str  # the name of the adapter
    draw: Callable[[Generator], Inputs]  # draws the adapter's arguments from a generator
    gradients: tuple[str, ...] = ()  # the arguments whose gradients are stored, too

    def draw_inputs(self, seed: int) -> Inputs:
        """Draw the arguments with this seed, in the types that a case can store."""
        return {key: _make_storable(key, x) for key, x in self.draw(Generator().manual_seed(seed)).items()}


def _make_storable(name: str, x: Any) -> Any:
    """Turn an argument into what a case can store: an array into a tensor, a tuple into a list."""
    if isinstance(x, dict):
        return {key: _make_storable(f"{name}[{key!r}]", each) for key, each in x.items()}
    if isinstance(x, np.ndarray | np.generic):
        return torch.from_numpy(x.copy()) if isinstance(x, np.ndarray) else x.item()
    if isinstance(x, Tensor):
        return x
    try:
        return json.loads(json.dumps(x))
    except TypeError as error:
        strange = str(error).split()[3]
        what = add_article(type(x).__name__) + f" with a {strange} in it" * isinstance(x, list | tuple)
        kept = "tensors, arrays of numpy, numbers, text, lists and dictionaries"
        raise SuiteError(f"draws {name}, {what}: a case keeps {kept}") from None


def specs(
    call: str, draws: Mapping[str, Mapping[str, Callable[[Generator], Inputs]]], gradients: tuple[str, ...] = ()
) -> list[CaseSpec]:
    """Make a recipe for each of `draws`, by folder and name. Folders named `...-gradients` also store gradients."""
    return [
        CaseSpec(f"{folder}/{name}", call, draw, gradients if folder.endswith("-gradients") else ())
        for folder, named in draws.items()
        for name, draw in named.items()
    ]
