"""A small language model of characters on the student's decoding, and the same as one file.

Nothing in the file is ever run: to read one is to read tensors and JSON.
"""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from cs336_kit.engine.compare import WrongAnswer, check_shape
from cs336_kit.lab.bad_input import BadInput, reject_unreadable
from cs336_kit.lab.classifier import write_whole

METADATA = "cs336 language model"
D_MODEL, NUM_HEADS, NUM_KV_HEADS, LAYERS = 96, 4, 2, 2
WINDOW = 32  # with it, distances in a text of any length are those of training
LONGEST = 2048  # characters that it can read and write together

Decode = Callable[..., tuple[Tensor, Tensor, Tensor]]  # the student's `run_decoding`
Cache = tuple[Tensor, Tensor] | tuple[None, None]


class Block(nn.Module):
    """x + decoding(LayerNorm(x)), and on top of that a small network for each character."""

    def __init__(self, decode: Decode) -> None:
        super().__init__()
        self.decode = decode
        d_k = D_MODEL // NUM_HEADS
        rows = (D_MODEL, NUM_KV_HEADS * d_k, NUM_KV_HEADS * d_k, D_MODEL)
        self.weights = nn.ParameterList(torch.randn(count, D_MODEL) / math.sqrt(D_MODEL) for count in rows)
        self.norm = nn.LayerNorm(D_MODEL)
        self.network = nn.Sequential(
            nn.LayerNorm(D_MODEL), nn.Linear(D_MODEL, 4 * D_MODEL), nn.GELU(), nn.Linear(4 * D_MODEL, D_MODEL)
        )

    def forward(self, x: Float[Tensor, "... new d_model"], cache: Cache) -> tuple[Tensor, Cache]:
        sizes = (D_MODEL, NUM_HEADS, NUM_KV_HEADS, WINDOW, LONGEST, 10_000.0)
        came: Any = self.decode(*sizes, *self.weights, self.norm(x), *cache)
        if not isinstance(came, tuple | list) or len(came) != 3:
            raise WrongAnswer("run_decoding should return the answer, and the keys and values of the cache")
        answer, *kept = came
        check_shape(answer, tuple(x.shape))
        x = x + answer
        return x + self.network(x), (kept[0], kept[1])


class LanguageModel(nn.Module):
    """Blocks between a table of characters and logits of the next one; call it within `Student.in_words()`.

    Args:
        decode: the student's `run_decoding`.
        characters: those that it knows.
    """

    def __init__(self, decode: Decode, characters: str) -> None:
        super().__init__()
        self.characters = characters
        self.embedding = nn.Embedding(len(characters), D_MODEL)
        self.blocks = nn.ModuleList(Block(decode) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(D_MODEL)
        self.logits = nn.Linear(D_MODEL, len(characters))

    def forward(
        self, tokens: Int[Tensor, "... new"], caches: Sequence[Cache] = ((None, None),) * LAYERS
    ) -> tuple[Float[Tensor, "... new characters"], list[Cache]]:
        """The logits of what follows each token, and the caches with these tokens in them."""
        x, longer = self.embedding(tokens), []
        for block, cache in zip(self.blocks, caches, strict=True):
            x, cache = block(x, cache)
            longer.append(cache)
        return self.logits(self.norm(x)), longer

    def encode(self, text: str) -> Int[Tensor, " characters"]:
        """The tokens of a text.

        Raises:
            BadInput: it is empty, or has a character that the model does not know.
        """
        if not text:
            raise BadInput("expected at least one character to go on from")
        for character in text:
            if character not in self.characters:
                raise BadInput(f"{character!r} is not in the text that the model was trained on; leave it out")
        return torch.tensor([self.characters.index(character) for character in text])


def save_language_model(path: Path, model: LanguageModel) -> None:
    """Write the file, whole or not at all; what was there is replaced.

    Raises:
        BadInput: it cannot be written.
    """
    write_whole(path, model, {METADATA: json.dumps({"characters": model.characters})})


def load_language_model(path: Path, decode: Decode) -> LanguageModel:
    """Read the file.

    Raises:
        BadInput: it is missing or damaged, or is not a language model.
    """
    if not path.is_file():
        raise BadInput(f"there is no file {path}; `uv run cs336 train docs` writes one")
    try:
        with reject_unreadable(path), safe_open(path, framework="pt") as file:
            model = LanguageModel(decode, str(json.loads((file.metadata() or {})[METADATA])["characters"]))
            model.load_state_dict({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118 (no mapping)
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError):
        message = f"{path} is not a language model, or is a damaged one; write it again with `uv run cs336 train docs`"
        raise BadInput(message) from None
    return model.eval()
