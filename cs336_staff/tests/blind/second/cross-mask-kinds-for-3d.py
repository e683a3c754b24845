"""Multi-head attention of one sequence on another.

Wrong: the kind of the mask is told by its number of dimensions alone (2: padding, 3: all heads, 4: each head), as is right for a
query of (batch, queries, d_model), instead of comparing with the dimensions of the query. Without a batch, or with more than
one leading dimension, masks are taken for the wrong kind, which mostly raises an error.
"""

import math

import torch
from einops import einsum, rearrange


class MultiHeadAttention:
    def __init__(self, d_model, num_heads, wq, wk, wv, wo):
        self.h = num_heads
        self.d_head = d_model // num_heads
        self.wq, self.wk, self.wv = (rearrange(w, "(h d) m -> h d m", h=num_heads) for w in (wq, wk, wv))
        self.wo = rearrange(wo, "m (h d) -> m h d", h=num_heads)

    def _prepare_mask(self, mask):
        if mask.dim() == 2:  # (batch, keys)
            return mask[:, None, None, :]
        if mask.dim() == 3:  # (batch, queries, keys)
            return mask[:, None, :, :]
        return mask  # (batch, heads, queries, keys)

    def forward(self, query, key, value, mask=None):
        q = einsum(query, self.wq, "... q m, h d m -> ... h q d")
        k = einsum(key, self.wk, "... k m, h d m -> ... h k d")
        v = einsum(value, self.wv, "... k m, h d m -> ... h k d")
        s = einsum(q, k, "... q d, ... k d -> ... q k") / math.sqrt(self.d_head)
        if mask is not None:
            s = s.masked_fill(~self._prepare_mask(mask), float("-inf"))
        top = s.amax(-1, keepdim=True)
        e = torch.exp(s - top.masked_fill(top == float("-inf"), 0.0))
        z = e.sum(-1, keepdim=True)
        w = e / z.masked_fill(z == 0, 1.0)
        heads = einsum(w, v, "... q k, ... k d -> ... q d")
        return einsum(heads, self.wo, "... h q d, m h d -> ... q m")


def run_multihead_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, query, key, value, mask=None
):
    mha = MultiHeadAttention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    return mha.forward(query, key, value, mask)
