import torch


def softmax(x, dim):
    y = x.to(torch.promote_types(x.dtype, torch.float32))
    y = (y - y.amax(dim, keepdim=True)).exp()
    return (y / y.sum(dim, keepdim=True)).to(x.dtype)


def attention(Q, K, V, mask=None):
    t = torch.promote_types(Q.dtype, torch.float32)
    s = Q.to(t) @ K.to(t).mT / Q.shape[-1] ** 0.5
    if mask is None:
        return (softmax(s, -1) @ V.to(t)).to(Q.dtype)
    s = s.masked_fill(~mask, -torch.inf).masked_fill(~mask.any(-1, keepdim=True), 0.0)
    return (softmax(s, -1).masked_fill(~mask, 0.0) @ V.to(t)).to(Q.dtype)


def rope(x, p, theta):
    d = x.shape[-1]
    a = p[..., None] * theta ** -(torch.arange(0, d, 2) / d)
    e, o = x[..., ::2], x[..., 1::2]
    return torch.stack([e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()], -1).flatten(-2)


def mha(x, h, wq, wk, wv, wo, theta=None, p=None):
    q, k, v = ((x @ w.T).unflatten(-1, (h, -1)).transpose(-2, -3) for w in (wq, wk, wv))
    if theta is not None:
        q, k = rope(q, p.unsqueeze(-2), theta), rope(k, p.unsqueeze(-2), theta)
    n = x.shape[-2]
    past = torch.tril(torch.ones(n, n), diagonal=-1).bool()
    return attention(q, k, v, past).transpose(-2, -3).flatten(-2) @ wo.T
