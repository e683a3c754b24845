"""One mistake: which kind of mask it is, is read from the number of its dimensions alone (2: padding, 3: for all heads,
4: for each head), as if there were always one batch dimension. With no leading dimension, or with two, a mask is taken
for another kind and raises an error (or masks the wrong keys where the sizes happen to fit)."""
import math

import torch
from einops import einsum, rearrange


class MultiHeadAttention:
    def __init__(self, num_heads, wq, wk, wv, wo):
        self.wq, self.wk, self.wv = (rearrange(w, "(h d) m -> h d m", h=num_heads) for w in (wq, wk, wv))
        self.wo = rearrange(wo, "m (h d) -> m h d", h=num_heads)

    def __call__(self, query, key, value, mask):
        q = einsum(query, self.wq, "... q m, h d m -> ... h q d")
        k = einsum(key, self.wk, "... k m, h d m -> ... h k d")
        v = einsum(value, self.wv, "... k m, h d m -> ... h k d")
        scores = einsum(q, k, "... h q d, ... h k d -> ... h q k") / math.sqrt(q.shape[-1])
        if mask is not None:
            if mask.ndim == 2:  # (batch, keys)
                mask = mask[:, None, None, :]
            elif mask.ndim == 3:  # (batch, queries, keys)
                mask = mask[:, None]
            scores.masked_fill_(~mask, -math.inf)
        top = scores.detach().amax(-1, keepdim=True)
        top = top.masked_fill(top == -math.inf, 0.0)
        w = torch.exp(scores - top)
        total = w.sum(-1, keepdim=True)
        w = w / total.masked_fill(total == 0, 1.0)
        out = einsum(w, v, "... h q k, ... h k d -> ... h q d")
        return einsum(out, self.wo, "... h q d, m h d -> ... q m")


def run_multihead_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, query, key, value, mask=None
):
    wide = torch.promote_types(query.dtype, torch.float32)
    ws = [w.to(wide) for w in (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)]
    return MultiHeadAttention(num_heads, *ws)(query.to(wide), key.to(wide), value.to(wide), mask).to(query.dtype)
