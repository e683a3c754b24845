"""Wrong: a padding mask (batch, keys) sets the keys and values of the padding to zero vectors and leaves their logits at 0
in place of -inf, so that padding still takes a share of the weights. The other two kinds of masks are right."""

import math

import torch
from einops import rearrange
from torch import Tensor


def attention(q, k, v, mask):
    dtype = q.dtype
    wide = torch.promote_types(dtype, torch.float32)
    scores = q.to(wide) @ k.to(wide).mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    m = scores.amax(-1, keepdim=True).detach()
    m = torch.where(m == -math.inf, 0.0, m)
    e = torch.exp(scores - m)
    total = e.sum(-1, keepdim=True)
    total = torch.where(total == 0, 1.0, total)
    return (e / total @ v.to(wide)).to(dtype)


def run_multihead_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
) -> Tensor:
    K = key @ k_proj_weight.T
    V = value @ v_proj_weight.T
    if mask is not None and mask.ndim == query.ndim - 1:
        # padding: the filled up places must not count
        K = K * mask.unsqueeze(-1)
        V = V * mask.unsqueeze(-1)
        mask = None
    elif mask is not None and mask.ndim == query.ndim:
        mask = mask.unsqueeze(-3)
    q = rearrange(query @ q_proj_weight.T, "... s (h d) -> ... h s d", h=num_heads)
    k = rearrange(K, "... s (h d) -> ... h s d", h=num_heads)
    v = rearrange(V, "... s (h d) -> ... h s d", h=num_heads)
    heads = rearrange(attention(q, k, v, mask), "... h s d -> ... s (h d)")
    return heads @ o_proj_weight.T
