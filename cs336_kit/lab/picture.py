"""A picture, whatever draws it: tokens, the weights of each head, and one scale of colours for all of them."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

# From no weight to the largest in the picture; and NaN.
LOW, HIGH, NOT_A_NUMBER = "#ffffff", "#08306b", "#d95f02"

# From this share of the largest weight on, the colour is so dark that text on it is white.
DARK = 0.65

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
        hidden: True where a mask keeps a query from a key; None if there is no mask.
    """

    layer: int
    head: str
    causal: bool
    title: str
    weights: Float[Tensor, "queries keys"]
    hidden: Bool[Tensor, "queries keys"] | None = None


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
    def scale(self) -> float:
        """The weight from which on the colour is darkest, in all patterns: the largest.

        At least twice an even share, so that a word that looks equally at all words is light. Of a text too long for
        labels, one that a thousandth of the weights exceed: else the first rows of a causal mask would leave the others
        white.
        """
        weights = torch.cat([x[x.isfinite()] for x in self._weights()] or [torch.zeros(0)])
        if not weights.numel():
            return 1.0
        largest = float(weights.amax())
        if len(self.keys) > LABELLED:
            largest = float(weights[:: 1 + len(weights) // SAMPLE].quantile(0.999))
        return max(largest, min(1.0, 2 / len(self.keys)))

    def warnings(self) -> list[str]:
        """A line for each thing that weights of attention should not be."""
        found = []
        if any(not x.isfinite().all() for x in self._weights()):
            found.append("Some weights are NaN or infinite: your attention gives them; `cs336 debug` tells more.")
        finite = [pattern for pattern in self.patterns if pattern.weights.isfinite().all()]
        sums = [pattern.weights.sum(-1) for pattern in finite]
        right = [1.0 if each.hidden is None else (~each.hidden).any(-1).float() for each in finite]
        if any((total - one).abs().max() > 1e-3 for total, one in zip(sums, right, strict=True)):
            least, most = min(float(x.amin()) for x in sums), max(float(x.amax()) for x in sums)
            found.append(f"The weights of a token should sum to 1; yours sum to {least:.3g} up to {most:.3g}.")
        if any(each.hidden is not None and each.weights[each.hidden].abs().gt(1e-4).any() for each in finite):
            found.append("Some tokens that the mask hides have weight; `cs336 debug` tells more.")
        return found

    def sentences(self, pattern: Pattern, show: Callable[[str], str] = str) -> Iterator[str]:
        """For each query, a sentence on the keys that get most of its attention; `show` makes a token readable."""
        keys = _names([show(token) for token in self.keys])
        of_itself = self.queries == self.keys
        for place, (query, row) in enumerate(zip(_names([*map(show, self.queries)]), pattern.weights, strict=True)):
            yield f"{query} {_looks_at(place if of_itself else None, row, keys)}"

    def _weights(self) -> Iterator[Tensor]:
        return (pattern.weights for pattern in self.patterns)


def _names(tokens: list[str]) -> list[str]:
    count = Counter(tokens)
    return [f"“{token}”" if count[token] == 1 else f"“{token}” at {place}" for place, token in enumerate(tokens)]


def _looks_at(query: int | None, row: Tensor, names: list[str]) -> str:
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


def printable(token: str) -> str:
    """A text for the terminal, without characters that would move the cursor or turn the direction of a line around."""
    return "".join(char if char.isprintable() else "�" for char in token)
