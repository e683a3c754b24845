import math

import torch
from einops import einsum, rearrange


def softmax(x, dim):
    dtype = x.dtype
    x = x.to(torch.promote_types(dtype, torch.float32))
    e = torch.exp(x - x.max(dim=dim, keepdim=True).values)
    return (e / e.sum(dim=dim, keepdim=True)).to(dtype)


def sdpa(Q, K, V, mask=None):
    t = torch.promote_types(Q.dtype, torch.float32)
    scores = einsum(Q.to(t), K.to(t), "... q d, ... k d -> ... q k") / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = torch.where(mask, scores, float("-inf"))
    return einsum(softmax(scores, -1), V.to(t), "... q k, ... k d -> ... q d").to(Q.dtype)


class RoPE:
    def __init__(self, theta, d_k, max_seq_len):
        self.a = torch.arange(max_seq_len)[:, None] / theta ** (torch.arange(0, d_k, 2) / d_k)

    def __call__(self, x, p):
        a = self.a[p]
        x0, x1 = rearrange(x, "... (i c) -> c ... i", c=2)
        return rearrange([x0 * a.cos() - x1 * a.sin(), x0 * a.sin() + x1 * a.cos()], "c ... i -> ... (i c)")


def mha(x, h, wq, wk, wv, wo, rope=None, p=None):
    q, k, v = (rearrange(x @ w.T, "... t (h d) -> ... h t d", h=h) for w in (wq, wk, wv))
    n = x.shape[-2]
    if rope is not None:
        p = torch.arange(n) if p is None else p
        q, k = rope(q, p[..., None, :]), rope(k, p[..., None, :])
    y = sdpa(q, k, v, torch.tril(torch.ones(n, n)).bool())
    return rearrange(y, "... h t d -> ... t (h d)") @ wo.T
