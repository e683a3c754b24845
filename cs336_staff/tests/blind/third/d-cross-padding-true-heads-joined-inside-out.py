"""Wrong, twice: a padding mask (batch, keys) is read as True = padding, as torch does, so that the real keys are hidden (the
other masks are right); and the heads are joined as (d_head, heads) in place of (heads, d_head) before W_O."""

import math

import torch
from einops import einsum, rearrange
from torch import Tensor


def _full_mask(mask: Tensor | None, ndim: int) -> Tensor | None:
    """Bring a mask of any kind to (batch, heads, queries, keys)."""
    if mask is None:
        return None
    if mask.ndim == ndim - 1:  # a padding mask says what is padding
        return ~mask[..., None, None, :]
    return mask[..., None, :, :] if mask.ndim == ndim else mask


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
    wq, wk, wv = (
        rearrange(w, "(h d) m -> h d m", h=num_heads) for w in (q_proj_weight, k_proj_weight, v_proj_weight)
    )
    Q = einsum(query, wq, "... s m, h d m -> ... h s d")
    K = einsum(key, wk, "... s m, h d m -> ... h s d")
    V = einsum(value, wv, "... s m, h d m -> ... h s d")
    wide = torch.promote_types(Q.dtype, torch.float32)
    scores = einsum(Q.to(wide), K.to(wide), "... q d, ... k d -> ... q k") / math.sqrt(Q.shape[-1])
    allowed = _full_mask(mask, query.ndim)
    if allowed is not None:
        scores = torch.where(allowed, scores, -math.inf)
    e = torch.exp(scores - scores.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(wide).min))
    total = e.sum(-1, keepdim=True)
    weights = e / torch.where(total == 0, 1.0, total)
    heads = einsum(weights, V.to(wide), "... h q k, ... h k d -> ... q d h").to(query.dtype)
    return heads.flatten(-2) @ o_proj_weight.T
