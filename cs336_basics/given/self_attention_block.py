"""Multi-head self-attention with what a deep network needs around it."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from cs336_basics.given.relative_position_bias import RelativePositionBias, with_bias
from cs336_basics.nn.functional import scaled_dot_product_attention
from cs336_basics.nn.linear import Linear


class SelfAttentionBlock(nn.Module):
    r"""x + dropout(W_O · concat(head_1, ..., head_h)), where head_i attends within LayerNorm(x).

    Every head has a layer of its own for its queries, keys and values.

    Args:
        d_model: length of the vectors that come in and go out.
        num_heads: number of heads; each has d_k = d_v = d_model / num_heads.
        position_bias: is added to the scores of every head, if given.
        dropout: the share of the sum that is dropped in training.

    Raises:
        ValueError: `d_model` is not a multiple of `num_heads`.

    Source:
        Vaswani et al., Attention Is All You Need (2017), section 3.1; Xiong et al., On Layer Normalization in the
        Transformer Architecture (2020), for the LayerNorm in front.
    """

    def __init__(
        self, d_model: int, num_heads: int, position_bias: RelativePositionBias | None = None, dropout: float = 0.0
    ) -> None:
        super().__init__()
        if d_model % num_heads:
            raise ValueError(f"expected num_heads to divide d_model, got num_heads {num_heads} and d_model {d_model}")
        self.norm = nn.LayerNorm(d_model)
        self.heads = nn.ModuleList(Linear(d_model, 3 * d_model // num_heads) for _ in range(num_heads))
        self.position_bias = position_bias
        self.output = Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "batch sequence d_model"],
        mask: Bool[Tensor, "batch #sequence sequence"] | None = None,
    ) -> Float[Tensor, "batch sequence d_model"]:
        """Attend within `x`; where `mask` is True a position may attend to another, in every head."""
        Q, K, V = self._queries_keys_values(x)
        by_head = scaled_dot_product_attention(Q, K, V, _for_every_head(mask))
        return x + self.dropout(self.output(torch.cat(by_head.unbind(1), dim=-1)))

    def attention_weights(
        self,
        x: Float[Tensor, "batch sequence d_model"],
        mask: Bool[Tensor, "batch #sequence sequence"] | None = None,
    ) -> Float[Tensor, "batch head sequence sequence"]:
        """Compute how much each position attends to each other: attention with the identity for its values."""
        Q, K, _ = self._queries_keys_values(x)
        identity = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        return scaled_dot_product_attention(Q, K, identity, _for_every_head(mask))

    def _queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        normalised = self.norm(x)
        Q, K, V = torch.stack([head(normalised) for head in self.heads], dim=1).chunk(3, dim=-1)
        if self.position_bias is not None:
            Q, K = with_bias(Q, K, self.position_bias(x.shape[1], x.shape[1]))
        return Q, K, V


def _for_every_head(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else mask[:, None]
