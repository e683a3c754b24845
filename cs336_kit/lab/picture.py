"""A picture, whatever draws it: tokens, the weights of each head, and one scale of colours for all of them.

As a page it is one HTML file, which asks the network for nothing.
"""

import base64
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor

# From no weight to the largest in the picture; and NaN.
LOW, HIGH, NOT_A_NUMBER = "#ffffff", "#08306b", "#d95f02"

# From this share of the largest weight on, the colour is so dark that text on it is white.
DARK = 0.65

PLACE = "{{data}}"  # in page.html

LABELLED = 40  # more tokens have no room for their words
SAMPLE = 1_000_000  # weights that are enough to choose a scale
NAMED = 3  # of tokens that get the same weight, how many a sentence names


@dataclass(frozen=True)
class Pattern:
    """The weights of one head.

    Args:
        layer: counted from 0.
        head: its name.
        causal: whether a token sees only itself and those before it.
        title: all of this in words.
        weights: as the student's attention gives them: finite and not negative only if that is right.
        hidden: True where a mask keeps a query from a key.
    """

    layer: int
    head: str
    causal: bool
    title: str
    weights: Float[Tensor, "queries keys"]
    hidden: Bool[Tensor, "queries keys"]


@dataclass(frozen=True)
class Picture:
    """A picture of how tokens attend to tokens.

    Args:
        queries: the tokens that ask.
        keys: the tokens that are looked at; the same in a text that attends to itself.
        patterns: what is shown side by side.
        notes: a line each, to be read with the picture.
        values: whether a figure has the number in each cell, too.
    """

    queries: list[str]
    keys: list[str]
    patterns: list[Pattern]
    notes: list[str]
    values: bool = False

    @property
    def weights(self) -> Float[Tensor, "patterns queries keys"]:
        """Those of all patterns."""
        return torch.stack([pattern.weights for pattern in self.patterns])

    @property
    def hidden(self) -> Bool[Tensor, "patterns queries keys"]:
        """The hidden cells of all patterns."""
        return torch.stack([pattern.hidden for pattern in self.patterns])

    @property
    def scale(self) -> float:
        """The weight from which on the colour is darkest, in all patterns: the largest.

        At least twice an even share, so that a word that looks equally at all words is light. Of a text too long for
        labels, one that a thousandth of the weights exceed: else the first rows of a causal mask would leave the others
        white.
        """
        weights = self.weights
        weights = weights[weights.isfinite()]
        if not weights.numel():
            return 1.0
        if len(self.keys) > LABELLED:
            weights = weights[:: 1 + len(weights) // SAMPLE].quantile(0.999)
        return max(float(weights.amax()), min(1.0, 2 / len(self.keys)))

    def warnings(self) -> list[str]:
        """A line for each thing that weights of attention should not be."""
        found, weights, hidden = [], self.weights, self.hidden
        finite = weights.isfinite().flatten(1).all(1)
        if not finite.all():
            found.append("Some weights are NaN or infinite: your attention gives them; `cs336 debug` tells more.")
        weights, hidden = weights[finite], hidden[finite]
        sums, right = weights.sum(-1), (~hidden).any(-1).float()
        if (sums - right).abs().gt(1e-3).any():
            span = f"{float(sums.amin()):.3g} up to {float(sums.amax()):.3g}"
            found.append(f"The weights of a token should sum to 1; yours sum to {span}.")
        if weights[hidden].abs().gt(1e-4).any():
            found.append("Some tokens that the mask hides have weight; `cs336 debug` tells more.")
        return found

    def sentences(self, pattern: Pattern, show: Callable[[str], str] = str) -> Iterator[str]:
        """For each query, a sentence on the keys that get most of its attention; `show` makes a token readable."""
        queries, keys = (_name_tokens([*map(show, tokens)]) for tokens in (self.queries, self.keys))
        of_itself = self.queries == self.keys
        for place, (query, row) in enumerate(zip(queries, pattern.weights, strict=True)):
            yield f"{query} {_describe_row(place if of_itself else None, row, keys)}"

    def write_page(self, mask: str, path: Path) -> None:
        """Write the page, from which its reader chooses among the patterns.

        Args:
            mask: the one shown first: "none", "causal" or "both".
            path: the file.
        """
        data = {
            "queries": self.queries,
            "keys": self.keys,
            "notes": [*self.warnings(), *self.notes],
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
                    "sentences": list(self.sentences(pattern, lambda token: f"\u2068{token}\u2069")),
                }
                for pattern in self.patterns
            ],
            # float32, little-endian, and a byte each: (pattern, query, key)
            "weights": _pack(self.weights.float().numpy().astype("<f4").tobytes()),
            "hidden": _pack(self.hidden.numpy().tobytes()),
        }
        # Inside a script element only "<" can end it or begin a comment; in JSON it may be written as an escape.
        written = json.dumps(data).replace("<", "\\u003c")
        template = files("cs336_kit.lab").joinpath("page.html").read_text(encoding="utf-8")
        path.write_text(template.replace(PLACE, written), encoding="utf-8")


def _pack(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


def _name_tokens(tokens: list[str]) -> list[str]:
    count = Counter(tokens)
    return [f"“{token}”" if count[token] == 1 else f"“{token}” at {place}" for place, token in enumerate(tokens)]


def _describe_row(query: int | None, row: Tensor, names: list[str]) -> str:
    if not row.isfinite().all():
        return "has weights that are not numbers"
    largest = float(row.amax())
    if largest <= 0.0:
        return "looks at nothing"
    seen = int((row > 0.0).sum())
    first = (row >= largest * (1 - 1e-4)).nonzero().flatten().tolist()
    if seen == 1:
        return f"looks at {'itself' if first[0] == query else names[first[0]]} alone"
    if len(first) == seen:
        return f"looks equally at all {seen} it sees ({largest:.2g} each)"
    listed = ["itself" if key == query else names[key] for key in first[:NAMED]]
    if len(first) > NAMED:
        listed.append(f"{len(first) - NAMED} more")
    most = listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} and {listed[-1]}"
    return f"looks most at {most} ({largest:.2g}{' each' if len(first) > 1 else ''})"


def make_printable(token: str) -> str:
    """A text for the terminal, without characters that would move the cursor or turn the direction of a line around."""
    return "".join(char if char.isprintable() else "�" for char in token)
