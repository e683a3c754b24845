"""Attention as a module, with dropout in training, and with weights and scores to look at."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from cs336_basics.given.checks import check_attention_arguments
from cs336_basics.nn.functional import attention_scores, softmax, weighted_values


class ScaledDotProductAttention(nn.Module):
    r"""dropout(softmax(Q Kᵀ / √d_k)) V, without parameters.

    In training each weight becomes 0 with probability p = `dropout`, and the others are divided by 1 - p, so that the
    output is the same on average. In evaluation nothing is dropped. Which weights are dropped follows from
    `torch.manual_seed`.

    Args:
        dropout: the probability p.

    Raises:
        ValueError: `dropout` is negative, or not below 1.

    Source:
        Vaswani et al., Attention Is All You Need (2017), section 3.2.1; Srivastava et al., Dropout (2014).
    """

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        # BEGIN SOLUTION
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"expected a dropout of at least 0 and below 1, got {dropout}")
        self.dropout = dropout
        # END SOLUTION

    def forward(
        self,
        Q: Float[Tensor, "... queries d_k"],
        K: Float[Tensor, "... keys d_k"],
        V: Float[Tensor, "... keys d_v"],
        mask: Bool[Tensor, "... #queries #keys"] | None = None,
        *,
        return_weights: bool = False,
        return_scores: bool = False,
    ) -> Tensor | tuple[Tensor, ...]:
        """Attend as `scaled_dot_product_attention` does, with dropout in training.

        Args:
            Q: queries.
            K: keys.
            V: values, one for each key.
            mask: True where a query may attend to a key.
            return_weights: also return the weights, after dropout, as the output uses them.
            return_scores: also return the scores, the input of softmax; -inf where the mask is False.

        Returns:
            The output (..., queries, d_v); or a tuple of it and the weights, the scores, or both, in this order, each
            (..., queries, keys).
        """
        # BEGIN SOLUTION
        check_attention_arguments(Q, K, V, mask)
        scores = attention_scores(Q, K, mask)
        weights = self._drop(softmax(scores, dim=-1))
        output = weighted_values(weights, V)
        more = (weights.to(Q.dtype),) * return_weights + (scores,) * return_scores
        return (output, *more) if more else output
        # END SOLUTION

    # BEGIN SOLUTION
    def _drop(self, weights: Tensor) -> Tensor:
        if not self.training or self.dropout == 0.0:
            return weights
        kept = torch.rand_like(weights) >= self.dropout
        return torch.where(kept, weights / (1.0 - self.dropout), 0.0)

    # END SOLUTION
