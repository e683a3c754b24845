import torch

from .functional import scaled_dot_product_attention


def linear(w, x):
    return x @ w.T


class Rotary:
    def __init__(self, theta):
        self.theta = theta

    def __call__(self, x, p):
        d = x.shape[-1]
        a = p[..., None] * self.theta ** -(torch.arange(0, d, 2) / d)
        e, o = x[..., ::2], x[..., 1::2]
        return torch.stack([e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()], -1).flatten(-2)


class MultiHead:
    def __init__(self, h, wq, wk, wv, wo, rope=None):
        self.h, self.qkv, self.wo, self.rope = h, (wq, wk, wv), wo, rope

    def __call__(self, x, p=None):
        q, k, v = (linear(w, x).unflatten(-1, (self.h, -1)).transpose(-2, -3) for w in self.qkv)
        n = x.shape[-2]
        if self.rope is not None:
            p = torch.arange(n) if p is None else p
            q, k = self.rope(q, p.unsqueeze(-2)), self.rope(k, p.unsqueeze(-2))
        y = scaled_dot_product_attention(q, k, v, torch.ones(n, n, dtype=torch.bool).tril())
        return linear(self.wo, y.transpose(-2, -3).flatten(-2))
