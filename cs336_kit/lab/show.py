"""Find what `cs336 show` shows: the weights of every head on a text, as a picture to be looked at and saved.

Queries and keys come from a classifier, a model, or a table of words by hand, so that every weight can be explained.
"""

import re
import tomllib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cs336_kit.lab.bad_input import BadInput
from cs336_kit.lab.classifier import Classifier, load_classifier
from cs336_kit.lab.huggingface import Model
from cs336_kit.lab.picture import Pattern, Picture, refuse_too_many
from cs336_kit.lab.student import Student
from cs336_kit.lab.terminal import Heatmaps
from cs336_kit.lab.view import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The score, after the division by √d_k, of a query and a key that has one feature it asks for: e³ is 20 times the
# weight of a key that has none.
MATCH = 3.0

PUNCTUATION = r".,;:!?\"“”„«»()…"
TOKEN = re.compile(rf"[{PUNCTUATION}]|[^\s{PUNCTUATION}]+")

LISTED = 8  # of words that are not in the table


class Words:
    """The words of `words.toml`, which says what each word is and, for each head, which features ask for which.

    There are no positions: a word that occurs twice asks, and is asked for, in the same way both times.
    """

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
        parts = [f"known by the ending alone: {_list_words(by_ending)}"] if by_ending else []
        if unknown:
            parts.append(f"without any feature, so asking for nothing and found by nobody: {_list_words(unknown)}")
        return [f"Not in the table of words: {'; '.join(parts)}."] if parts else []

    def features(self, token: str) -> list[str]:
        """List the features of a token: from the table, or else from its ending."""
        word = token.casefold()
        if word in self._words:
            return self._words[word]
        return next((features for ending, features in self._endings.items() if word.endswith(ending)), [])

    def weights(
        self, text: str, mask: Bool[Tensor, "queries keys"] | None
    ) -> Float[Tensor, "layers heads queries keys"]:
        """Queries are what the words ask for, keys what they are."""
        has = [self.features(token) for token in self.tokens(text)]
        keys = torch.tensor([[float(feature in features) for feature in self._features] for features in has])
        asked = torch.tensor(
            [
                [[float(other in asks.get(feature, ())) for other in self._features] for feature in self._features]
                for asks in self._asks.values()
            ]
        )
        queries = MATCH * len(self._features) ** 0.5 * keys @ asked
        return self._student.weights(queries, keys.expand_as(queries), mask)[None]


def _list_words(words: list[str]) -> str:
    return ", ".join(words[:LISTED]) + (f" and {len(words) - LISTED} more" if len(words) > LISTED else "")


# What reads a text, and has the student's attention applied to it. It has a number of `layers`; names of `heads`, the
# same in each; `causal`, whether it was made to look back only; the `tokens` of a text; `notes`, which a reader of the
# picture has to know; and the `weights` of a text under a mask, by layer and head.
Source = Classifier | Model | Words


def find_source(student: Student, classifier: Path | None, model: Path | None) -> Source:
    """Choose where queries and keys come from: a classifier, a model, or the table of words if there is neither."""
    if model:
        return Model(model, student)
    if classifier:
        return load_classifier(classifier, student.adapters.attention_classifier)
    return Words(student)


def find_picture(
    source: Source,
    text: str,
    masks: Sequence[bool],
    layers: Sequence[int],
    head: str | None = None,
    values: bool = False,
    vmax: float = 1.0,
) -> Picture:
    """The patterns that were asked for: layer by layer, all heads without a mask and then all with one.

    Args:
        source: where queries and keys come from.
        text: what is read.
        masks: for each, whether it is causal.
        layers: counted from 0.
        head: its name, or None for all.
        values: whether a figure has the number in each cell, too.
        vmax: the weight that has the strongest colour.

    Raises:
        BadInput: there is no text, no such layer or head, or too much to be drawn.
    """
    tokens = source.tokens(text)
    if not tokens:
        raise BadInput("the text has no tokens: give at least one word")
    if not all(0 <= layer < source.layers for layer in layers):
        raise BadInput(f"there is no layer {layers[0]}: choose one from 0 to {source.layers - 1}")
    if head is not None and head not in source.heads:
        raise BadInput(f"there is no head {head}: choose one of {', '.join(source.heads)}")
    heads = source.heads if head is None else [head]
    count = len(layers) * len(heads) * len(masks) * len(tokens) ** 2
    refuse_too_many(count, "choose a --layer and a --head, or less text")
    everything = torch.ones(len(tokens), len(tokens), dtype=torch.bool)
    weights = {causal: source.weights(text, everything.tril() if causal else None) for causal in masks}
    patterns = [
        Pattern(
            layer=layer,
            head=name,
            causal=causal,
            title=f"layer {layer}, " * (source.layers > 1)
            + (f"head {name}" if name.isdigit() else name)
            + ", causal" * causal,
            weights=weights[causal][layer, source.heads.index(name)],
            hidden=everything.triu(1) if causal else ~everything,
        )
        for layer in layers
        for causal in masks
        for name in heads
    ]
    return Picture(tokens, tokens, patterns, source.notes(text), values, vmax=vmax)


def view_picture(picture: Picture, mask: str = "none") -> View:
    """A picture to be looked at; `mask` is the one that its page shows first."""

    def draw() -> "Figure":
        from cs336_kit.lab.figure import draw_picture

        return draw_picture(picture)

    return View([Heatmaps(picture)], draw, lambda path: picture.write_page(mask, path))
