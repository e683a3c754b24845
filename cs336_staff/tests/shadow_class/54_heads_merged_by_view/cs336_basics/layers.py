import torch

from cs336_basics.ops import scaled_dot_product_attention


def linear(x, w):
    return torch.einsum("...i,oi->...o", x, w)


def apply_rope(x, p, theta):
    d = x.shape[-1]
    a = p[..., None] * theta ** -(torch.arange(0, d, 2) / d)
    e, o = x[..., ::2], x[..., 1::2]
    return torch.stack([e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()], -1).flatten(-2)


class MultiHeadSelfAttention:
    def __init__(self, h, wq, wk, wv, wo, theta=None):
        self.h, self.wq, self.wk, self.wv, self.wo, self.theta = h, wq, wk, wv, wo, theta

    def __call__(self, x, p=None):
        *lead, n, d = x.shape
        q, k, v = (linear(x, w).view(*lead, n, self.h, d // self.h).transpose(-2, -3) for w in (self.wq, self.wk, self.wv))
        if self.theta is not None:
            p = torch.arange(n) if p is None else p
            q, k = apply_rope(q, p.unsqueeze(-2), self.theta), apply_rope(k, p.unsqueeze(-2), self.theta)
        out = scaled_dot_product_attention(q, k, v, torch.ones(n, n, dtype=torch.bool).tril())
        return linear(out.contiguous().view(*lead, n, d), self.wo)
