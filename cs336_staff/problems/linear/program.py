"""A linear layer in steps, and the mistakes that can be made in each."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from cs336_staff.authoring.table import Table, Ways, random, rounded, ways_to


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
    ("transposed", lambda W: W.mT),
    ("transposed", lambda W: W.mT if W.shape[0] == W.shape[1] else W),
    ("reshaped", lambda W: W.reshape(W.shape[1], W.shape[0]).mT),
    ("normalised", lambda W: W / W.norm(dim=1, keepdim=True)),
    ("clamped", lambda W, c: W.clamp(-c * sigma(W), c * sigma(W)), (1.0, 2.0, 3.0)),
    ("clamped", lambda W, c: W.clamp(-c, c), (0.5, 1.0, 2.0)),
    *(("half-weights", lambda W, dtype=dtype: rounded(W, dtype)) for name, dtype in HALF.items()),
)

PRODUCT = ways_to(
    "product",
    ("wrong-axis", lambda x, W: reversed_axes(W @ reversed_axes(x)) if x.ndim > 2 else F.linear(x, W)),
    ("last-axis-but-one", lambda x, W: W @ x),
    *(
        ("half", lambda x, W, dtype=dtype: F.linear(x.to(dtype), W.to(dtype)).to(x.dtype))
        for name, dtype in HALF.items()
    ),
)

ANSWER = ways_to(
    "answer",
    ("relu", lambda y, x: y.relu()),
    ("scaled", lambda y, x: y * x.shape[-1] ** -0.5),
    ("scaled", lambda y, x: y * y.shape[-1] ** -0.5),
    ("scaled", lambda y, x, c: y * c, (-1.0, 0.5, 2.0)),
    ("flattened", lambda y, x: y.reshape(-1, y.shape[-1])),
    ("three-axes", lambda y, x: y.reshape(x.shape[0], -1, y.shape[-1])),
    ("bias", lambda y, x, c: y + c, (-1.0, 0.01, 0.1, 1.0)),
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
)
