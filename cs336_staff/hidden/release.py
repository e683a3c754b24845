"""The release of the hidden suite: its secret seed and the weights of its tests."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Release:
    """What `release.toml` states.

    Args:
        seed: where every hidden input comes from.
        weights: for each problem, the weight of each of its hidden tests.
    """

    seed: int
    weights: dict[str, dict[str, float]]


def load_release() -> Release:
    return Release(**tomllib.loads((FOLDER / "release.toml").read_text(encoding="utf-8")))
