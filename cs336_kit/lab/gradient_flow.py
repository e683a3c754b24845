"""Which gradients reach the queries, keys and values, and what becomes of them when scores are large."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

# Each figure is a mean over this many draws.
DRAWS = 64

Attention = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


@dataclass(frozen=True)
class Saturation:
    """What softmax makes of the scores of random queries and keys.

    Args:
        largest_weight: of a query, on average.
        gradient: the norm of the gradient that reaches the scores of a query, on average.
    """

    largest_weight: float
    gradient: float


@dataclass(frozen=True)
class Flow:
    """What was measured.

    Args:
        mask: the name of the mask.
        visible: the mask, True where a query may attend to a key.
        norms: the norms of the gradients of Q, K and V by position, without a mask and with it.
        saturation: for each d_k, with the division by its root and without.
    """

    mask: str
    visible: Bool[Tensor, "queries keys"]
    norms: list[dict[str, Float[Tensor, " position"]]]
    saturation: dict[int, list[Saturation]]


def gradient_norms(
    attention: Attention, length: int, d_k: int, mask: Bool[Tensor, "queries keys"] | None, seed: int
) -> dict[str, Float[Tensor, " position"]]:
    """The norms of the gradients of Q, K and V at each position.

    Q, K, V and the gradient that comes back to the output are drawn from a normal distribution.

    Args:
        attention: the student's.
        length: number of positions.
        d_k: length of queries, keys and values.
        mask: True where a query may attend to a key.
        seed: of the draws.
    """
    Q, K, V, output_gradient = torch.randn(4, DRAWS, length, d_k, generator=torch.Generator().manual_seed(seed))
    tensors = {"Q": Q.requires_grad_(), "K": K.requires_grad_(), "V": V.requires_grad_()}
    gradients = torch.autograd.grad(attention(Q, K, V, mask), list(tensors.values()), output_gradient)
    return {name: gradient.norm(dim=-1).mean(dim=0) for name, gradient in zip(tensors, gradients, strict=True)}


def saturation(attention: Attention, length: int, d_k: int, scaled: bool, seed: int) -> Saturation:
    """What becomes of the scores q · k, divided by √d_k or not, of `length` queries and keys.

    The scores are handed to attention as queries: when the keys are the identity, q · k is an entry of the query. And
    when the values are the identity, the output is the weights.
    """
    generator = torch.Generator().manual_seed(seed)
    queries, keys = torch.randn(2, DRAWS, length, d_k, generator=generator)
    scores = (queries @ keys.mT / (math.sqrt(d_k) if scaled else 1.0)).requires_grad_()
    identity = torch.eye(length).expand(DRAWS, -1, -1)
    weights = attention(scores * math.sqrt(length), identity, identity, None)
    output_gradient = torch.randn(weights.shape, generator=generator)
    (gradient,) = torch.autograd.grad(weights, scores, output_gradient)
    return Saturation(weights.amax(dim=-1).mean().item(), gradient.norm(dim=-1).mean().item())
