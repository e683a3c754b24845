import torch


def softmax(x, dim):
    y = x.to(torch.promote_types(x.dtype, torch.float32))
    y = (y - y.amax(dim, keepdim=True)).exp()
    return (y / y.sum(dim, keepdim=True)).to(x.dtype)


def attend(Q, K, V, mask=None):
    t = torch.promote_types(Q.dtype, torch.float32)
    scores = torch.einsum("...qd,...kd->...qk", Q.to(t), K.to(t)) / Q.shape[-1]
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf).masked_fill(~mask.any(-1, keepdim=True), 0.0)
    w = softmax(scores, -1)
    if mask is not None:
        w = w.masked_fill(~mask, 0.0)
    return (w @ V.to(t)).to(Q.dtype)


def rope(x, p, theta):
    d = x.shape[-1]
    a = p[..., None] * theta ** -(torch.arange(0, d, 2) / d)
    e, o = x[..., ::2], x[..., 1::2]
    return torch.stack([e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()], -1).flatten(-2)


def heads(x, h, wq, wk, wv, wo, theta=None, p=None):
    q, k, v = ((x @ w.T).unflatten(-1, (h, -1)).transpose(-2, -3) for w in (wq, wk, wv))
    if theta is not None:
        q, k = rope(q, p.unsqueeze(-2), theta), rope(k, p.unsqueeze(-2), theta)
    n = x.shape[-2]
    return attend(q, k, v, torch.ones(n, n, dtype=torch.bool).tril()).transpose(-2, -3).flatten(-2) @ wo.T
