"""Words as lists of features, by hand, so that every weight in a picture can be explained.

`words.toml` says what each word is and, for each head, which features ask for which. There are no positions: a word
that occurs twice asks, and is asked for, in the same way both times.
"""

import re
import tomllib
from importlib.resources import files

import torch
from jaxtyping import Float
from torch import Tensor

from cs336_kit.lab.source import causal_mask
from cs336_kit.lab.student import Student

# The score, after the division by √d_k, of a query and a key that has one feature it asks for: e³ is 20 times the
# weight of a key that has none.
MATCH = 3.0

PUNCTUATION = r".,;:!?\"“”„«»()…"
TOKEN = re.compile(rf"[{PUNCTUATION}]|[^\s{PUNCTUATION}]+")

LISTED = 8  # of words that are not in the table


class Words:
    """The words of `words.toml` as a source of one layer, whose heads are those of the file."""

    layers = 1
    causal = False

    def __init__(self, student: Student) -> None:
        self._student = student
        table = tomllib.loads(files("cs336_kit.lab").joinpath("words.toml").read_text(encoding="utf-8"))
        self._words: dict[str, list[str]] = table["words"]
        self._endings: dict[str, list[str]] = table["endings"]
        self._asks: dict[str, dict[str, list[str]]] = table["heads"]
        self.heads = list(self._asks)
        known = (*self._words.values(), *self._endings.values())
        self._features = sorted({feature for features in known for feature in features})

    def tokens(self, text: str) -> list[str]:
        """Words and punctuation marks."""
        return TOKEN.findall(text)

    def notes(self, text: str) -> list[str]:
        """One line on the words that are not in the table, if there are any."""
        new = [token for token in dict.fromkeys(self.tokens(text)) if token.casefold() not in self._words]
        by_ending = [token for token in new if self.features(token)]
        unknown = [token for token in new if not self.features(token)]
        parts = [f"known by the ending alone: {_listed(by_ending)}"] if by_ending else []
        if unknown:
            parts.append(f"without any feature, so asking for nothing and found by nobody: {_listed(unknown)}")
        return [f"Not in the table of words: {'; '.join(parts)}."] if parts else []

    def features(self, token: str) -> list[str]:
        """List the features of a token: from the table, or else from its ending."""
        word = token.casefold()
        if word in self._words:
            return self._words[word]
        return next((features for ending, features in self._endings.items() if word.endswith(ending)), [])

    def weights(self, text: str, causal: bool) -> Float[Tensor, "layers heads queries keys"]:
        """Queries are what the words ask for, keys what they are."""
        has = [self.features(token) for token in self.tokens(text)]
        keys = torch.tensor([[float(feature in features) for feature in self._features] for features in has])
        asked = torch.tensor([[self._asked(head, feature) for feature in self._features] for head in self.heads])
        queries = MATCH * len(self._features) ** 0.5 * keys @ asked
        mask = causal_mask(len(has)) if causal else None
        return self._student.weights(queries, keys.expand_as(queries), mask)[None]

    def _asked(self, head: str, feature: str) -> list[float]:
        """1 for each of the features that this one asks for."""
        return [float(other in self._asks[head].get(feature, ())) for other in self._features]


def _listed(words: list[str]) -> str:
    return ", ".join(words[:LISTED]) + (f" and {len(words) - LISTED} more" if len(words) > LISTED else "")
