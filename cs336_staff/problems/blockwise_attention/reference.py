"""What blockwise attention gives in float64, and how far a right program may round."""

import math

from torch import Tensor

from cs336_staff.authoring.rounding import Bounded, Rounded
from cs336_staff.problems.scaled_dot_product_attention.reference import (
    bound_scaled_dot_product_attention,
    run_scaled_dot_product_attention,
)


def run_blockwise_attention(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, block_size: int | None = None
) -> Tensor:
    """Blocks change nothing in exact arithmetic."""
    return run_scaled_dot_product_attention(Q, K, V, mask)


def bound_blockwise_attention(
    Q: Rounded,
    K: Rounded,
    V: Rounded,
    mask: Tensor | None = None,
    block_size: int | None = None,
    cotangent: Rounded | None = None,
) -> Bounded:
    """Blocks of which no size is given are taken to be at least 16 keys long."""
    blocks = math.ceil(K.value.shape[-2] / (block_size or 16))
    return bound_scaled_dot_product_attention(Q, K, V, mask, cotangent, blocks)
