"""Wrong programs of others, who knew neither the catalogue nor the examination."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cs336_staff.release.blind import load

FOLDER = Path(__file__).parents[1] / "blind"


def blind(program: str, adapter: str, written: str = "first") -> Callable[..., Any]:
    """An adapter of one of the programs that were written the `first`, the "second" or the "third" time."""
    return load(FOLDER / written / f"{program}.py")[adapter]
