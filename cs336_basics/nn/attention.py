"""Causal multi-head self-attention."""

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from cs336_basics.nn.functional import scaled_dot_product_attention
from cs336_basics.nn.linear import Linear
from cs336_basics.nn.rope import RotaryPositionalEmbedding


class CausalMultiHeadSelfAttention(nn.Module):
    r"""W_O · concat(head_1, ..., head_h), where head_i = attention(W_Qi x, W_Ki x, W_Vi x) looks at no later position.

    The rows of `qkv_proj.weight` are W_Q, W_K and W_V, one below the other; within each, the heads are the outer
    factor: rows [i · d_k, (i + 1) · d_k) belong to head i.

    Args:
        d_model: length of the input and output vectors.
        num_heads: number of heads; each has d_k = d_v = d_model / num_heads.
        rope: rotates the queries and keys of every head, if given. Its d_k is that of one head.

    Raises:
        ValueError: `d_model` is not a multiple of `num_heads`.

    Source:
        Vaswani et al., Attention Is All You Need (2017), section 3.2.2.
    """

    # BEGIN SOLUTION
    causal_mask: Tensor  # (longest sequence so far, longest sequence so far)
    # END SOLUTION

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        rope: RotaryPositionalEmbedding | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        # BEGIN SOLUTION
        if d_model % num_heads:
            raise ValueError(f"expected d_model to be a multiple of num_heads, got {d_model} and {num_heads}")
        self.num_heads = num_heads
        self.qkv_proj = Linear(d_model, 3 * d_model, device, dtype)
        self.output_proj = Linear(d_model, d_model, device, dtype)
        self.rope = rope
        self.register_buffer("causal_mask", torch.ones(0, 0, dtype=torch.bool, device=device), persistent=False)
        # END SOLUTION

    def forward(
        self,
        x: Float[Tensor, "... sequence d_model"],
        token_positions: Int[Tensor, "... sequence"] | None = None,
    ) -> Float[Tensor, "... sequence d_model"]:
        """Attend within `x`; `token_positions` are for RoPE, and count from 0 if they are not given."""
        # BEGIN SOLUTION
        Q, K, V = rearrange(
            self.qkv_proj(x),
            "... sequence (three head d_head) -> three ... head sequence d_head",
            three=3,
            head=self.num_heads,
        )
        if self.rope is not None:
            if token_positions is None:
                token_positions = torch.arange(x.shape[-2], device=x.device)
            # Positions may differ between sequences; the heads of one sequence share them.
            token_positions = rearrange(token_positions, "... sequence -> ... 1 sequence")
            Q, K = self.rope(Q, token_positions), self.rope(K, token_positions)
        heads = scaled_dot_product_attention(Q, K, V, self._causal_mask(x.shape[-2]))
        return self.output_proj(rearrange(heads, "... head sequence d_head -> ... sequence (head d_head)"))
        # END SOLUTION

    # BEGIN SOLUTION
    def _causal_mask(self, length: int) -> Bool[Tensor, "length length"]:
        """Return the corner of a mask that is rebuilt only when a longer sequence comes."""
        if length > self.causal_mask.shape[0]:
            self.causal_mask = torch.ones(length, length, dtype=torch.bool, device=self.causal_mask.device).tril()
        return self.causal_mask[:length, :length]

    # END SOLUTION
