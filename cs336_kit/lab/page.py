"""Attention as a page: one HTML file that asks the network for nothing."""

import base64
import json
import zlib
from importlib.resources import files
from pathlib import Path

import torch

from cs336_kit.lab.picture import DARK, HIGH, LOW, NOT_A_NUMBER, Picture, in_words

PLACE = "{{data}}"


def write_page(picture: Picture, mask: str, path: Path) -> None:
    """Write the page to `path`.

    Args:
        picture: all layers, heads and masks that the reader can choose from.
        mask: the one shown first: "none", "causal" or "both".
        path: the file.
    """
    weights = torch.stack([pattern.weights.float() for pattern in picture.patterns]).numpy()
    isolated = [f"\u2068{token}\u2069" for token in picture.tokens]  # one from right to left turns nothing around it
    data = {
        "tokens": picture.tokens,
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
                "sentences": list(in_words(isolated, pattern.weights)),
            }
            for pattern in picture.patterns
        ],
        # float32, little-endian, (pattern, query, key)
        "weights": base64.b64encode(zlib.compress(weights.astype("<f4").tobytes())).decode(),
    }
    # Inside a script element only "<" can end it or begin a comment; in JSON it may be written as an escape.
    written = json.dumps(data).replace("<", "\\u003c")
    template = files("cs336_kit.lab").joinpath("page.html").read_text(encoding="utf-8")
    path.write_text(template.replace(PLACE, written), encoding="utf-8")
