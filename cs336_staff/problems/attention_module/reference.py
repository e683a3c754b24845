"""What the attention module gives in float64 when it drops nothing."""

import torch
from torch import Tensor

from cs336_staff.problems.scaled_dot_product_attention.reference import run_scaled_dot_product_attention


def run_scaled_dot_product_attention_module(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, dropout: float, training: bool, seed: int
) -> tuple[Tensor, Tensor]:
    """The right answer without dropout: which weights it drops differs from program to program."""
    identity = torch.eye(K.shape[-2], dtype=K.dtype)  # attention that averages it gives its weights
    return run_scaled_dot_product_attention(Q, K, V, mask), run_scaled_dot_product_attention(Q, K, identity, mask)
