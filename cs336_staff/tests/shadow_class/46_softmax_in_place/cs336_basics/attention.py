import torch


def softmax(x, dim):
    dtype = x.dtype
    if dtype in (torch.float16, torch.bfloat16):
        x = x.float()
    x -= x.max(dim, keepdim=True).values  # saves memory
    e = torch.exp(x)
    return (e / e.sum(dim, keepdim=True)).to(dtype)


def attention(Q, K, V, mask=None):
    t = torch.promote_types(Q.dtype, torch.float32)
    scores = Q.to(t) @ K.to(t).mT / Q.shape[-1] ** 0.5
    if mask is None:
        return (softmax(scores, -1) @ V.to(t)).to(Q.dtype)
    scores = scores.masked_fill(~mask, -torch.inf).masked_fill(~mask.any(-1, keepdim=True), 0.0)
    return (softmax(scores, -1).masked_fill(~mask, 0.0) @ V.to(t)).to(Q.dtype)


def lin(x, w):
    return x @ w.T


def rope(x, p, theta):
    d = x.shape[-1]
    a = p[..., None] * theta ** -(torch.arange(0, d, 2) / d)
    e, o = x[..., ::2], x[..., 1::2]
    return torch.stack([e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()], -1).flatten(-2)


class Mha:
    def __init__(self, h, theta, wq, wk, wv, wo):
        self.h, self.theta, self.qkv, self.wo = h, theta, torch.stack([wq, wk, wv]), wo

    def __call__(self, x, p=None):
        q, k, v = torch.einsum("noi,...ti->n...to", self.qkv, x).unflatten(-1, (self.h, -1)).transpose(-2, -3)
        n = x.shape[-2]
        if self.theta is not None:
            p = torch.arange(n) if p is None else p
            q, k = rope(q, p.unsqueeze(-2), self.theta), rope(k, p.unsqueeze(-2), self.theta)
        return lin(attention(q, k, v, torch.ones(n, n).tril().bool()).transpose(-2, -3).flatten(-2), self.wo)
