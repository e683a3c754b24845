"""A picture, whatever draws it: tokens, the weights of each head, and one scale of colours for all of them.

As a page it is one HTML file, which asks the network for nothing.
"""

import base64
import json
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cs336_kit.engine.compare import listed
from cs336_kit.lab.bad_input import BadInput

# Of weights from 0 on, of scores from the lowest through 0 to the highest; by day, and on a page by night.
COLOURS = {
    "weights": (("#ffffff", "#08306b"), ("#16181c", "#cfe3ff")),
    "scores": (("#67001f", "#ffffff", "#08306b"), ("#ffcfc4", "#16181c", "#cfe3ff")),
}
NOT_A_NUMBER, LINES, WARNING = "#d95f02", "#d0d0d0", "#b2182b"

PLACE = "{{data}}"  # in page.html

LABELLED = 40  # more tokens have no room for their words
MOST_WEIGHTS = 10_000_000  # as a page 45 MB at most
PALE = 0.1  # of the scale: if the largest weight of most rows is below, there is little to be seen
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
        title: above all patterns.
        vmax: the weight that has the strongest colour, and all above it.
        scores: whether these are scores, from -vmax to vmax, and not weights, from 0 on and in percent.
    """

    queries: list[str]
    keys: list[str]
    patterns: list[Pattern]
    notes: list[str]
    values: bool = False
    title: str = ""
    vmax: float = 1.0
    scores: bool = False

    @property
    def vmin(self) -> float:
        """The weight or score that has the first colour."""
        return -self.vmax if self.scores else 0.0

    @property
    def colours(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """From `vmin` to `vmax`, by day and by night."""
        return COLOURS["scores" if self.scores else "weights"]

    def write(self, x: float) -> str:
        """The number in a cell: a percentage, or a score."""
        if not math.isfinite(x):
            return "NaN" if math.isnan(x) else str(x)
        return f"{x:z.1f}" if self.scores else f"{min(999.0, max(-99.0, 100 * x)):.0f}"

    @property
    def weights(self) -> Float[Tensor, "patterns queries keys"]:
        """Those of all patterns."""
        return torch.stack([pattern.weights for pattern in self.patterns])

    @property
    def hidden(self) -> Bool[Tensor, "patterns queries keys"]:
        """The hidden cells of all patterns."""
        return torch.stack([pattern.hidden for pattern in self.patterns])

    def warnings(self) -> list[str]:
        """A line for each thing that weights of attention should not be."""
        found, weights, hidden = [], self.weights, self.hidden
        finite = weights.isfinite().flatten(1).all(1)
        if not finite.all():
            found.append("Some numbers are NaN or infinite; `cs336 debug` tells where they come from.")
        weights, hidden = weights[finite], hidden[finite]
        if self.scores or not len(weights):
            return found
        if weights.amin() < -1e-4:
            found.append("Some weights are negative. If these are scores, draw them with scores=True.")
        sums, right = weights.sum(-1), (~hidden).any(-1).float()
        if (sums - right).abs().gt(1e-3).any():
            span = " up to ".join(dict.fromkeys(f"{100 * x:.3g}%" for x in (float(sums.amin()), float(sums.amax()))))
            found.append(f"The weights of a token should sum to 100%; yours sum to {span}.")
        if weights[hidden].abs().gt(1e-4).any():
            found.append("Some tokens that the mask hides have weight; `cs336 debug` tells more.")
        middle = float(weights.amax(-1).median())
        if 0.0 < middle < PALE * self.vmax:
            found.append(
                f"Half of the rows have no weight above {percent(middle)}: with vmax {middle:.1g} you see more."
            )
        return found

    def sentences(self, pattern: Pattern, show: Callable[[str], str] = str) -> Iterator[str]:
        """For each query, a sentence on the keys that get most of its attention; `show` makes a token readable."""
        if self.scores:
            return
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
            "title": self.title,
            "scores": self.scores,
            "span": [self.vmin, self.vmax],
            "colours": self.colours,
            "notANumber": NOT_A_NUMBER,
            "patterns": [
                {name: getattr(pattern, name) for name in ("layer", "head", "causal", "title")}
                # Between marks: one that is written from right to left turns nothing around it.
                | {"sentences": list(self.sentences(pattern, lambda token: f"\u2068{token}\u2069"))}
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
        return f"looks equally at all {seen} it sees ({percent(largest)} each)"
    looked_at = ["itself" if key == query else names[key] for key in first[:NAMED]]
    if len(first) > NAMED:
        looked_at.append(f"{len(first) - NAMED} more")
    return f"looks most at {listed(looked_at)} ({percent(largest)}{' each' if len(first) > 1 else ''})"


def percent(share: float) -> str:
    """A share in whole percent."""
    return "<1%" if 0.0 < share < 0.005 else f"{share:.0%}"


def choose_ink(red: float, green: float, blue: float) -> str:
    """Black or white, whichever can be read on this colour, of numbers from 0 to 1."""
    return "#000000" if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.179 else "#ffffff"


def refuse_too_many(count: int, advice: str) -> None:
    """Raise BadInput, with this advice, if these are more weights than can be looked at."""
    if count > MOST_WEIGHTS:
        raise BadInput(f"that is {count:,} weights, more than {MOST_WEIGHTS:,}: {advice}")


def make_printable(token: str) -> str:
    """A text for the terminal, without characters that would move the cursor or turn the direction of a line around."""
    return "".join(char if char.isprintable() else "�" for char in token)
