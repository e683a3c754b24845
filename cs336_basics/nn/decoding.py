"""Causal self-attention for decoding token by token: grouped heads, a sliding window and a cache."""

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn

from cs336_basics.nn.functional import scaled_dot_product_attention
from cs336_basics.nn.linear import Linear
from cs336_basics.nn.rope import RotaryPositionalEmbedding


class GroupedQueryAttention(nn.Module):
    r"""Causal multi-head self-attention whose heads share keys and values in groups, with RoPE.

    Query head h uses key/value head ⌊h / g⌋, with g = num_heads / num_kv_heads. With a window w, token i attends to the
    tokens j with i - w < j ≤ i.

    Args:
        d_model: length of the input and output vectors.
        num_heads: number of query heads; each has d_k = d_model / num_heads.
        num_kv_heads: number of heads of keys and values.
        rope: rotates the queries and keys of every head. Its d_k is that of one head.
        window: how many tokens each one may attend to, itself among them; None for all up to itself.

    Raises:
        ValueError: `d_model` is not a multiple of `num_heads`, `num_heads` not one of `num_kv_heads`, or `window` is
            not positive.

    Source:
        Ainslie et al., GQA (2023); Beltagy et al., Longformer (2020), section 3.1, for the window.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_kv_heads: int,
        rope: RotaryPositionalEmbedding,
        window: int | None = None,
    ) -> None:
        super().__init__()
        # BEGIN SOLUTION
        if d_model % num_heads or num_heads % num_kv_heads:
            raise ValueError(
                "expected num_kv_heads to divide num_heads, and num_heads to divide d_model, "
                f"got {num_kv_heads}, {num_heads} and {d_model}"
            )
        if window is not None and window < 1:
            raise ValueError(f"expected a window of 1 or more, or None, got {window}")
        d_kv = d_model // num_heads * num_kv_heads
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.q_proj, self.output_proj = Linear(d_model, d_model), Linear(d_model, d_model)
        self.k_proj, self.v_proj = Linear(d_model, d_kv), Linear(d_model, d_kv)
        self.rope, self.window = rope, window
        # END SOLUTION

    def forward(
        self,
        x: Float[Tensor, "... new d_model"],
        cache: tuple[Float[Tensor, "... kv_heads past d_k"], Float[Tensor, "... kv_heads past d_k"]] | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Attend from the tokens `x` to themselves and to those before them, which are in the cache.

        Args:
            x: the tokens that follow those in the cache: a whole sequence, a part of one, or a single token.
            cache: the keys, after RoPE, and the values of all tokens before; None in the first call.

        Returns:
            The output (..., new, d_model), and the cache with the tokens `x` after the earlier ones. The tensors of the
            old cache stay as they were.
        """
        # BEGIN SOLUTION
        past = 0 if cache is None else cache[0].shape[-2]
        positions = torch.arange(past, past + x.shape[-2], device=x.device)
        Q = self.rope(_heads(self.q_proj(x), self.num_heads), positions)
        K = self.rope(_heads(self.k_proj(x), self.num_kv_heads), positions)
        V = _heads(self.v_proj(x), self.num_kv_heads)
        if cache is not None:
            K, V = torch.cat((cache[0], K), dim=-2), torch.cat((cache[1], V), dim=-2)
        # Broadcasting shares the keys and values within a group, so nothing is copied.
        Q = rearrange(Q, "... (kv group) new d_k -> ... kv group new d_k", kv=self.num_kv_heads)
        shared_K, shared_V = (rearrange(x, "... kv keys d_k -> ... kv 1 keys d_k") for x in (K, V))
        heads = scaled_dot_product_attention(Q, shared_K, shared_V, self._mask(positions, K.shape[-2]))
        return self.output_proj(rearrange(heads, "... kv group new d_k -> ... new (kv group d_k)")), (K, V)
        # END SOLUTION

    # BEGIN SOLUTION
    def _mask(self, positions: Tensor, keys: int) -> Bool[Tensor, "new keys"]:
        """Let each new token see the keys that are neither ahead of it nor too far behind."""
        distance = rearrange(positions, "new -> new 1") - torch.arange(keys, device=positions.device)
        return (distance >= 0) & (distance < (self.window or keys))

    # END SOLUTION


# BEGIN SOLUTION
def _heads(x: Float[Tensor, "... new features"], heads: int) -> Float[Tensor, "... heads new d_k"]:
    return rearrange(x, "... new (head d_k) -> ... head new d_k", head=heads)


# END SOLUTION
