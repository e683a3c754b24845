"""What the attention module gives in float64 when it drops nothing."""

from torch import Tensor

from problems.scaled_dot_product_attention.staff.reference import weigh


def run_scaled_dot_product_attention_module(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, dropout: float, training: bool, seed: int
) -> tuple[Tensor, Tensor]:
    """The right answer without dropout: which weights it drops differs from program to program."""
    weights = weigh(Q, K, mask)
    return weights @ V, weights
