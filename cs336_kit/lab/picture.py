"""What is drawn, whatever draws it: tokens, the weights of each head, and one scale of colours for all of them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

# From no weight to the largest in the picture; and what is no number.
LOW, HIGH, NOT_A_NUMBER = "#ffffff", "#08306b", "#d95f02"

# From this share of the largest weight on, the colour is so dark that text on it is white.
DARK = 0.65

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
    """

    layer: int
    head: str
    causal: bool
    title: str
    weights: Float[Tensor, "queries keys"]


@dataclass(frozen=True)
class Picture:
    """A text and how its tokens attend to each other.

    Args:
        tokens: each is a query, and a key.
        patterns: what is shown side by side.
        notes: a line each, to be read with the picture.
    """

    tokens: list[str]
    patterns: list[Pattern]
    notes: list[str]

    @property
    def largest(self) -> float:
        """The largest weight of all patterns, which gets the darkest colour in each of them."""
        return max((float(x[x.isfinite()].amax()) for x in self._weights() if x.isfinite().any()), default=1.0) or 1.0

    def warnings(self) -> list[str]:
        """A line for each thing that weights of attention should not be."""
        found = []
        if any(not x.isfinite().all() for x in self._weights()):
            found.append("Some weights are NaN or infinite: your attention gives them; `cs336 debug` tells more.")
        sums = [x.sum(-1) for x in self._weights() if x.isfinite().all()]
        if any((total - 1).abs().max() > 1e-3 for total in sums):
            least, most = min(float(x.amin()) for x in sums), max(float(x.amax()) for x in sums)
            found.append(f"The weights of a token should sum to 1; yours sum to {least:.3g} up to {most:.3g}.")
        return found

    def _weights(self) -> Iterator[Tensor]:
        return (pattern.weights for pattern in self.patterns)


def in_words(tokens: list[str], weights: Float[Tensor, "queries keys"]) -> Iterator[str]:
    """For each token, a sentence on the tokens that get most of its attention."""
    count = Counter(tokens)
    names = [f"“{token}”" if count[token] == 1 else f"“{token}” at {place}" for place, token in enumerate(tokens)]
    for query, row in enumerate(weights):
        yield f"{names[query]} {_looks_at(query, row, names)}"


def _looks_at(query: int, row: Tensor, names: list[str]) -> str:
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
        return f"looks alike at all {seen} it sees ({largest:.2g} each)"
    listed = ["itself" if key == query else names[key] for key in first[:NAMED]]
    if len(first) > NAMED:
        listed.append(f"{len(first) - NAMED} more")
    most = listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} and {listed[-1]}"
    return f"looks most at {most} ({largest:.2g}{' each' if len(first) > 1 else ''})"


def printable(token: str) -> str:
    """A text for the terminal, without characters that would move the cursor or turn the direction of a line around."""
    return "".join(char if char.isprintable() else "�" for char in token)
