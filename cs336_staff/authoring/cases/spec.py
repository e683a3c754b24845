"""The recipe of one case."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Generator

Inputs = dict[str, Any]


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
