"""A learned bias on the attention scores that depends on how far a key is from its query."""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn


class RelativePositionBias(nn.Module):
    r"""One learned number for each head and each distance key - query, clipped to -max_distance, ..., max_distance.

    It starts from zeros, so that at first position does not count.

    Args:
        num_heads: each has numbers of its own.
        max_distance: keys that are further away share the number of this distance.

    Raises:
        ValueError: `max_distance` is negative.

    Source:
        Raffel et al., Exploring the Limits of Transfer Learning (2020), section 2.1, for a scalar for each head; Shaw
        et al., Self-Attention with Relative Position Representations (2018), section 3.2, for the clipping.
    """

    def __init__(self, num_heads: int, max_distance: int) -> None:
        super().__init__()
        if max_distance < 0:
            raise ValueError(f"expected a max_distance of 0 or more, got {max_distance}")
        self.max_distance = max_distance
        self.weight = nn.Parameter(torch.zeros(num_heads, 2 * max_distance + 1))

    def forward(self, queries: int, keys: int) -> Float[Tensor, "head queries keys"]:
        """The bias for `queries` and `keys` that are both counted from 0."""
        positions = torch.arange(max(queries, keys), device=self.weight.device)
        distance = positions[None, :keys] - positions[:queries, None]
        return self.weight[:, distance.clamp(-self.max_distance, self.max_distance) + self.max_distance]


def with_bias(
    Q: Float[Tensor, "... queries d_k"],
    K: Float[Tensor, "... keys d_k"],
    bias: Float[Tensor, "... queries keys"],
) -> tuple[Float[Tensor, "... queries width"], Float[Tensor, "... keys width"]]:
    r"""Queries and keys whose attention scores are Q Kᵀ / √d_k + bias, for any attention to use.

    A bias is a dot product too. Query i gets a 1 in the i-th of as many further features as there are queries, and key
    j gets bias[i, j] there. Attention then divides by the root of the new width, d_k + queries; the factors undo it.

    Args:
        Q: queries.
        K: keys.
        bias: what to add to each score. Batch-like dimensions broadcast against those of `Q` and `K`.
    """
    queries, d_k = Q.shape[-2:]
    width = d_k + queries
    ones = torch.eye(queries, dtype=Q.dtype, device=Q.device) * math.sqrt(width)
    batch = np.broadcast_shapes(K.shape[:-2], bias.shape[:-2])
    further_keys = bias.mT.to(K.dtype)
    return (
        torch.cat((Q * math.sqrt(width / d_k), ones.expand(*Q.shape[:-2], -1, -1)), dim=-1),
        torch.cat((K.expand(*batch, -1, -1), further_keys.expand(*batch, -1, -1)), dim=-1),
    )
