"""Multi-head self-attention with a residual connection and LayerNorm, as deep networks need them."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cs336_basics.nn.functional import scaled_dot_product_attention
from cs336_basics.nn.linear import Linear


class SelfAttentionBlock(nn.Module):
    r"""x + W_O · concat(head_1, ..., head_h), where head_i attends within LayerNorm(x), in both directions.

    The sum, or *residual connection*, passes x on unchanged. So a block learns what to add to x, and in a deep stack
    the gradient reaches the first block through the sums, whatever the heads do. LayerNorm brings the features of each
    position to mean 0 and variance 1 before they become queries and keys. So scores keep their size, and softmax its
    gradient, however much earlier blocks have added to x. LayerNorm comes before the heads and not after the sum, where
    it would change what is passed on.

    Each head has its own layer for its queries, keys and values.

    Args:
        d_model: length of the input and output vectors.
        num_heads: number of heads; each has d_k = d_v = d_model / num_heads.

    Raises:
        ValueError: `d_model` is not a multiple of `num_heads`.

    Source:
        Vaswani et al., Attention Is All You Need (2017), section 3.1; Xiong et al., On Layer Normalization in the
        Transformer Architecture (2020), for the LayerNorm in front.
    """

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        if d_model % num_heads:
            raise ValueError(f"expected num_heads to divide d_model, got num_heads {num_heads} and d_model {d_model}")
        self.norm = nn.LayerNorm(d_model)
        self.heads = nn.ModuleList(Linear(d_model, 3 * d_model // num_heads) for _ in range(num_heads))
        self.output = Linear(d_model, d_model)

    def forward(self, x: Float[Tensor, "batch sequence d_model"]) -> Float[Tensor, "batch sequence d_model"]:
        """Attend within `x`."""
        by_head = scaled_dot_product_attention(*self._queries_keys_values(x))
        return x + self.output(torch.cat(by_head.unbind(1), dim=-1))

    def attention_weights(
        self, x: Float[Tensor, "batch sequence d_model"]
    ) -> Float[Tensor, "batch head sequence sequence"]:
        """Compute how much each position attends to each other one: attention with the identity matrix as values."""
        Q, K, _ = self._queries_keys_values(x)
        identity = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        return scaled_dot_product_attention(Q, K, identity)

    def _queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        normalised = self.norm(x)
        Q, K, V = torch.stack([head(normalised) for head in self.heads], dim=1).chunk(3, dim=-1)
        return Q, K, V
