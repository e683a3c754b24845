import torch


def softmax(x, dim):
    y = x.to(torch.promote_types(x.dtype, torch.float32))
    y = (y - y.amax(dim, keepdim=True)).exp()
    return (y / y.sum(dim, keepdim=True)).to(x.dtype)


def attn(Q, K, V, mask=None):
    """mask is True at what must not be seen, as in torch.nn.MultiheadAttention."""
    t = torch.promote_types(Q.dtype, torch.float32)
    s = Q.to(t) @ K.to(t).mT / Q.shape[-1] ** 0.5
    if mask is None:
        return (softmax(s, -1) @ V.to(t)).to(Q.dtype)
    s = s.masked_fill(mask, -torch.inf).masked_fill(mask.all(-1, keepdim=True), 0.0)
    return (softmax(s, -1).masked_fill(mask, 0.0) @ V.to(t)).to(Q.dtype)


class Linear:
    def __init__(self, w):
        self.w = w

    def __call__(self, x):
        return x @ self.w.T


def rot(x, p, theta):
    d = x.shape[-1]
    a = p[..., None] * theta ** -(torch.arange(0, d, 2) / d)
    e, o = x[..., ::2], x[..., 1::2]
    return torch.stack([e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()], -1).flatten(-2)


class MHA:
    def __init__(self, h, *weights):
        self.h, self.theta = h, weights[4] if len(weights) > 4 else None
        self.q, self.k, self.v, self.o = (Linear(w) for w in weights[:4])

    def __call__(self, x, p=None):
        q, k, v = (f(x).unflatten(-1, (self.h, -1)).transpose(-2, -3) for f in (self.q, self.k, self.v))
        if self.theta is not None:
            q, k = rot(q, p.unsqueeze(-2), self.theta), rot(k, p.unsqueeze(-2), self.theta)
        n = x.shape[-2]
        future = torch.triu(torch.ones(n, n, dtype=torch.bool), diagonal=1)
        return self.o(attn(q, k, v, future).transpose(-2, -3).flatten(-2))
