# everything is torch.einsum here, no modules
from math import inf, sqrt

import torch
from torch import einsum


def softmax(x, dim):
    up = x.to(torch.promote_types(x.dtype, torch.float32))
    up = torch.exp(up - torch.logsumexp(up, dim, keepdim=True))
    return up.to(x.dtype)


def sdpa(Q, K, V, mask=None):
    t = torch.promote_types(Q.dtype, torch.float32)
    q, k, v = Q.to(t) / sqrt(Q.shape[-1]), K.to(t), V.to(t)
    s = einsum("...ik,...jk->...ij", q, k)
    if mask is None:
        mask = torch.ones(s.shape[-2:], dtype=torch.bool)
    m = s.masked_fill(~mask, -inf).amax(-1, keepdim=True).clamp(min=torch.finfo(t).min)
    e = torch.exp(torch.where(mask, s - m, -inf))
    z = e.sum(-1, keepdim=True)
    a = e / torch.where(z > 0, z, 1.0)
    return einsum("...ij,...jd->...id", a, v).to(Q.dtype)


def linear(W, x):
    return einsum("oi,...i->...o", W, x)


def rope(x, p, theta):
    n = x.shape[-1] // 2
    f = theta ** (-torch.arange(n, dtype=torch.float64) / n)
    # complex numbers: pair (a, b) is a + ib, turning is multiplying by e^(i angle)
    turn = torch.polar(torch.ones((), dtype=torch.float64), p[..., None] * f).to(torch.complex64)
    z = torch.view_as_complex(x.unflatten(-1, (n, 2)).contiguous())
    return torch.view_as_real(z * turn).flatten(-2)


def mha(x, h, qkv, wo, theta=None, pos=None, use_rope=False):
    q, k, v = [einsum("hdm,...tm->...htd", w.unflatten(0, (h, -1)), x) for w in qkv]
    if use_rope:
        if pos is None:
            pos = torch.arange(x.shape[-2])
        q, k = rope(q, pos[..., None, :], theta), rope(k, pos[..., None, :], theta)
    T = x.shape[-2]
    y = sdpa(q, k, v, torch.tril(torch.ones(T, T)) == 1)
    return einsum("ohd,...htd->...to", wo.unflatten(1, (h, -1)), y)
