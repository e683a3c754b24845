import torch
from einops import einsum, rearrange


def softmax(x, dim):
    e = torch.exp(x - x.max(dim, keepdim=True).values)
    return e / e.sum(dim, keepdim=True)


def attention(Q, K, V, mask=None):
    scores = einsum(Q, K, "... i d, ... j d -> ... i j") / Q.shape[-1] ** 0.5
    if mask is None:
        return einsum(softmax(scores, -1), V, "... i j, ... j d -> ... i d")
    scores = scores.masked_fill(~mask, -torch.inf).masked_fill(~mask.any(-1, keepdim=True), 0.0)
    return einsum(softmax(scores, -1) * mask, V, "... i j, ... j d -> ... i d")


def linear(x, w):
    return einsum(x, w, "... i, o i -> ... o")


def rope(x, p, theta):
    d = x.shape[-1]
    a = p.unsqueeze(-1) * theta ** (-torch.arange(0, d, 2) / d)
    x0, x1 = rearrange(x, "... (i c) -> c ... i", c=2)
    return rearrange([x0 * a.cos() - x1 * a.sin(), x0 * a.sin() + x1 * a.cos()], "c ... i -> ... (i c)")


def heads(x, h, wq, wk, wv, wo, theta=None, p=None):
    q, k, v = (rearrange(linear(x, w), "... t (h d) -> ... h t d", h=h) for w in (wq, wk, wv))
    n = x.shape[-2]
    if theta is not None:
        p = rearrange(torch.arange(n) if p is None else p, "... t -> ... 1 t")
        q, k = rope(q, p, theta), rope(k, p, theta)
    y = attention(q, k, v, torch.ones(n, n, dtype=torch.bool).tril())
    return linear(rearrange(y, "... h t d -> ... t (h d)"), wo)
