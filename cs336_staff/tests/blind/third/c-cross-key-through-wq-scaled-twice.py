"""Two mistakes. First: the keys are projected with W_Q (a copied line), so that W_K is not used at all. Second: the
queries are divided by sqrt(d_head), and the scores once more, so that in all they are divided by d_head."""
import torch
from torch import Tensor


def split_heads(x: Tensor, h: int) -> Tensor:
    return x.reshape(*x.shape[:-1], h, x.shape[-1] // h).transpose(-3, -2)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    s = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        s = torch.where(mask, s, -torch.inf)
    if s.shape[-1] == 0:
        return s @ v
    m = s.amax(-1, keepdim=True).detach()
    e = torch.exp(s - torch.where(m == -torch.inf, 0.0, m))
    z = e.sum(-1, keepdim=True)
    return e / torch.where(z == 0, 1.0, z) @ v


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
    dtype = query.dtype
    wide = dtype if dtype == torch.float64 else torch.float32
    wq, wk, wv, wo = (w.to(wide) for w in (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight))
    d_head = d_model // num_heads

    q = split_heads(query.to(wide) @ wq.T, num_heads) / d_head**0.5
    k = split_heads(key.to(wide) @ wq.T, num_heads)
    v = split_heads(value.to(wide) @ wv.T, num_heads)

    if mask is not None:
        if mask.ndim == query.ndim - 1:
            mask = mask[..., None, None, :]
        elif mask.ndim == query.ndim:
            mask = mask.unsqueeze(-3)
    out = attend(q, k, v, mask).transpose(-3, -2).flatten(-2)
    return (out @ wo.T).to(dtype)
