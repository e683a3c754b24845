"""The source of queries and keys: hand-made word features, a trained classifier or a model on disk."""

from typing import Protocol

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Source(Protocol):
    """Reads a text, and has the student's attention applied to it.

    Attributes:
        heads: the names of the heads, the same in each layer.
        layers: how many there are.
        causal: whether it was made to look back only.
    """

    heads: list[str]
    layers: int
    causal: bool

    def tokens(self, text: str) -> list[str]:
        """The tokens of a text, as a reader would write them."""
        ...

    def notes(self, text: str) -> list[str]:
        """List what a reader of the picture has to know, a line each."""
        ...

    def weights(self, text: str, causal: bool) -> Float[Tensor, "layers heads queries keys"]:
        """The weights of each head: with a causal mask, or with none."""
        ...


def causal_mask(tokens: int) -> Bool[Tensor, "tokens tokens"]:
    """True for a token itself and those before it."""
    return torch.ones(tokens, tokens, dtype=torch.bool).tril()
