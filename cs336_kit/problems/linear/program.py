"""A linear layer in steps, and the mistakes that can be made in each."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from cs336_kit.examination.experiment import random
from cs336_kit.examination.table import Table, Ways, rounded, ways_to


def run_linear(ways: Ways, d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
    """A linear layer whose steps are done in these ways."""
    W = ways["weights"](weights)
    return ways["answer"](ways["product"](in_features, W), in_features)


RIGHT: Ways = {"weights": lambda W: W, "product": F.linear, "answer": lambda y, x: y}
HALF = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def sigma(W: Tensor) -> float:
    """Of weights as section 4 initialises them."""
    return (2 / (W.shape[0] + W.shape[1])) ** 0.5


def reversed_axes(x: Tensor) -> Tensor:
    return x.permute(*range(x.ndim)[::-1])


WEIGHTS = ways_to(
    "weights",
    "W has the shape (d_out, d_in). Which of its axes meets the last axis of x, and what do you do to W before?",
    ("transposed", "You multiply by W the wrong way round: y = Wᵀ x.", lambda W: W.mT),
    (
        "transposed",
        "You multiply by W the wrong way round where it is square.",
        lambda W: W.mT if W.shape[0] == W.shape[1] else W,
    ),
    (
        "reshaped",
        "You reshape W to (d_in, d_out) where it should be transposed.",
        lambda W: W.reshape(W.shape[1], W.shape[0]).mT,
    ),
    ("normalised", "The rows of W are divided by their lengths.", lambda W: W / W.norm(dim=1, keepdim=True)),
    (
        "clamped",
        "The weights are clipped to ±{} σ before they are used, where σ² is 2/(d_in + d_out).",
        lambda W, c: W.clamp(-c * sigma(W), c * sigma(W)),
        (1.0, 2.0, 3.0),
    ),
    ("clamped", "The weights are clipped to ±{} before they are used.", lambda W, c: W.clamp(-c, c), (0.5, 1.0, 2.0)),
    *(
        ("half-weights", f"The weights are rounded to {name}.", lambda W, dtype=dtype: rounded(W, dtype))
        for name, dtype in HALF.items()
    ),
)

PRODUCT = ways_to(
    "product",
    "In which dtype is your product computed?",
    (
        "wrong-axis",
        "Where x has more than two dimensions, W meets its second axis, or it raises where the sizes differ.",
        lambda x, W: reversed_axes(W @ reversed_axes(x)) if x.ndim > 2 else F.linear(x, W),
    ),
    (
        "last-axis-but-one",
        "Where x has more than one dimension, W meets its last axis but one, or it raises where the sizes differ.",
        lambda x, W: W @ x,
    ),
    *(
        (
            "half",
            f"x and W are multiplied in {name}.",
            lambda x, W, dtype=dtype: F.linear(x.to(dtype), W.to(dtype)).to(x.dtype),
        )
        for name, dtype in HALF.items()
    ),
    asks_of={
        "wrong-axis": "Which axes of three does `.T` exchange? Over which axis of its right factor does @ sum?",
        "last-axis-but-one": "Over which axis of its right factor does @ sum?",
    },
)

ANSWER = ways_to(
    "answer",
    "What happens to x or to y besides the product with W?",
    ("relu", "Negative answers are replaced by 0.", lambda y, x: y.relu()),
    ("scaled", "You divide by √d_in.", lambda y, x: y * x.shape[-1] ** -0.5),
    ("scaled", "You divide by √d_out.", lambda y, x: y * y.shape[-1] ** -0.5),
    ("scaled", "The answer is {} times what it should be.", lambda y, x, c: y * c, (-1.0, 0.5, 2.0)),
    (
        "flattened",
        "The leading axes are flattened into one and not brought back: the answer always has two axes.",
        lambda y, x: y.reshape(-1, y.shape[-1]),
    ),
    (
        "three-axes",
        "The answer is reshaped to (x.shape[0], -1, d_out), however many axes x has.",
        lambda y, x: y.reshape(x.shape[0], -1, y.shape[-1]),
    ),
    ("bias", "A bias is added, {} to every component.", lambda y, x, c: y + c, (-1.0, 0.01, 0.1, 1.0)),
    asks_of=dict.fromkeys(
        ("flattened", "three-axes"), "Which shape has x before you flatten it, and which shape should y have?"
    ),
)


def call(*shape: int, d_out: int, size: float = 1.0) -> tuple[Any, ...]:
    d_in = shape[-1]
    return d_in, d_out, size * random(3, d_out, d_in), random(4, *shape)


# Terms that almost cancel: who rounds them loses most of what is left.
CANCELLING = (2, 3, torch.tensor([[30.01, 30.0], [40.0, 40.03], [50.05, 50.0]]), torch.tensor([[1.01, -1.01]] * 4))
CALLS = {
    "For two dimensions": call(4, 3, d_out=2),
    "For a single vector": call(5, d_out=3),
    "For three dimensions": call(2, 4, 3, d_out=5),
    "For four dimensions": call(2, 3, 5, 4, d_out=6),
    "Where d_in and d_out are the same number": call(4, 4, 4, d_out=4),
    "Where the terms of the product almost cancel": CANCELLING,
    "For large weights": call(4, 5, d_out=7, size=10.0),
    "For small weights": call(4, 6, d_out=5, size=0.3),
}
TABLE = Table(
    run=run_linear,
    right=RIGHT,
    changes=(*WEIGHTS, *PRODUCT, *ANSWER),
    calls=CALLS,
    basic=frozenset({"For two dimensions", "For large weights", "For small weights"}),
    basic_words="for two dimensions",
    digits=("For two dimensions", "For large weights", "For small weights"),
)
