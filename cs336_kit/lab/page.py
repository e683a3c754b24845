"""Attention as a page: one HTML file that asks the network for nothing."""

import base64
import json
import zlib
from importlib.resources import files
from pathlib import Path

import torch

from cs336_kit.lab.bad_input import BadInput
from cs336_kit.lab.picture import DARK, HIGH, LOW, NOT_A_NUMBER, Pattern, Picture

PLACE = "{{data}}"


def write_page(picture: Picture, mask: str, path: Path) -> None:
    """Write the page to `path`.

    Args:
        picture: all layers, heads and masks that the reader can choose from.
        mask: the one shown first: "none", "causal" or "both".
        path: the file.

    Raises:
        BadInput: the file cannot be written.
    """
    weights = torch.stack([pattern.weights.float() for pattern in picture.patterns]).numpy()
    hidden = torch.stack([_hidden(pattern) for pattern in picture.patterns]).numpy()
    data = {
        "queries": picture.queries,
        "keys": picture.keys,
        "notes": [*picture.warnings(), *picture.notes],
        "mask": mask,
        "dark": DARK,
        "colours": {"low": LOW, "high": HIGH, "notANumber": NOT_A_NUMBER},
        "patterns": [
            {
                "layer": pattern.layer,
                "head": pattern.head,
                "causal": pattern.causal,
                "title": pattern.title,
                # Between marks: one that is written from right to left turns nothing around it.
                "sentences": list(picture.sentences(pattern, lambda token: f"\u2068{token}\u2069")),
            }
            for pattern in picture.patterns
        ],
        # float32, little-endian, and a byte each: (pattern, query, key)
        "weights": _packed(weights.astype("<f4").tobytes()),
        "hidden": _packed(hidden.tobytes()),
    }
    # Inside a script element only "<" can end it or begin a comment; in JSON it may be written as an escape.
    written = json.dumps(data).replace("<", "\\u003c")
    template = files("cs336_kit.lab").joinpath("page.html").read_text(encoding="utf-8")
    try:
        path.write_text(template.replace(PLACE, written), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from None


def _hidden(pattern: Pattern) -> torch.Tensor:
    return torch.zeros_like(pattern.weights, dtype=torch.bool) if pattern.hidden is None else pattern.hidden


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()
