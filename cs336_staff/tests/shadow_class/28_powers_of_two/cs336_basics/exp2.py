"""e^x = 2^(x log2 e), as flash attention does it; a GPU has an instruction for exp2 alone."""

import math

import torch

LOG2E = math.log2(math.e)


def _wide(x):
    return x.to(torch.promote_types(x.dtype, torch.float32))


def softmax(x, dim):
    y = _wide(x)
    y = torch.exp2((y - y.amax(dim, keepdim=True)) * LOG2E)
    return (y / y.sum(dim, keepdim=True)).to(x.dtype)


def attention(Q, K, V, mask=None):
    """Unnormalised weights times V first, one division for each query at the end."""
    s = torch.einsum("...id,...jd->...ij", _wide(Q) * (Q.shape[-1] ** -0.5), _wide(K))
    if mask is not None:
        s = s.masked_fill(~mask, -math.inf)
    m = s.amax(-1, keepdim=True)
    m = m.masked_fill(m == -math.inf, 0.0)
    p = torch.exp2((s - m) * LOG2E)
    l = p.sum(-1, keepdim=True)
    l = l + (l == 0)
    return (torch.einsum("...ij,...jd->...id", p, _wide(V)) / l).to(Q.dtype)


def linear(x, w):
    return torch.inner(x, w)


def rope(x, p, theta):
    d = x.shape[-1]
    a = p[..., None] * torch.exp2(torch.arange(0, d, 2) / d * -math.log2(theta))
    y = torch.empty_like(x)
    y[..., ::2] = x[..., ::2] * a.cos() - x[..., 1::2] * a.sin()
    y[..., 1::2] = x[..., 1::2] * a.cos() + x[..., ::2] * a.sin()
    return y


def multihead(x, h, qkv, o, theta=None, p=None):
    t = x.shape[-2]
    q, k, v = (torch.stack(linear(x, w).split(x.shape[-1] // h, -1), -3) for w in qkv)
    if theta is not None:
        p = torch.arange(t) if p is None else p
        q, k = rope(q, p[..., None, :], theta), rope(k, p[..., None, :], theta)
    y = attention(q, k, v, torch.arange(t)[:, None] - torch.arange(t) >= 0)
    return linear(torch.cat(list(y.unbind(-3)), -1), o)
