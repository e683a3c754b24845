"""Attention that drops weights, as right programs compute it."""

import torch
from torch import Tensor
from torch.nn import functional as F

from cs336_staff.authoring.room import Part
from cs336_staff.problems.scaled_dot_product_attention.programs import attention, weigh


def drop(weights: Tensor, p: float) -> Tensor:
    return torch.where(torch.rand(weights.shape) < p, 0.0, weights / (1 - p))


def dropping(drop: Part, attention: Part = attention) -> Part:
    """Attention that drops weights with probability p: its output, and the weights that are left."""

    def attend(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, p: float) -> tuple[Tensor, Tensor]:
        weights = weigh(Q, K, mask, attention)
        if p:
            weights = drop(weights, p)
        return weights @ V, weights

    return attend


def module(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    mask: Tensor | None,
    dropout: float,
    training: bool,
    seed: int,
    *,
    attend: Part,
    always: bool = False,
) -> tuple[Tensor, Tensor]:
    """Output and weights of `attend`, which drops nothing in evaluation unless it does so `always`."""
    torch.manual_seed(seed)
    return attend(Q, K, V, mask, dropout if training or always else 0.0)


def drop_bernoulli(weights: Tensor, p: float) -> Tensor:
    return weights * torch.bernoulli(torch.full_like(weights, 1 - p)) / (1 - p)


STYLES = {"einsum": drop_bernoulli, "matmul": F.dropout}
