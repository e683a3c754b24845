import torch

from attention import attention


def linear(x, weight):
    return x @ weight.T


def rotate(x, positions, theta):
    d = x.shape[-1]
    inv_freq = 1.0 / theta ** (torch.arange(0, d, 2).float() / d)
    angle = positions.unsqueeze(-1) * inv_freq
    cos, sin = angle.cos(), angle.sin()
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


class SelfAttention:
    def __init__(self, num_heads, wq, wk, wv, wo):
        self.num_heads = num_heads
        self.wq, self.wk, self.wv, self.wo = wq, wk, wv, wo

    def split(self, x):
        return x.unflatten(-1, (self.num_heads, -1)).transpose(-3, -2)

    def __call__(self, x, positions=None, theta=None):
        q, k, v = (self.split(linear(x, w)) for w in (self.wq, self.wk, self.wv))
        if positions is not None:
            positions = positions.unsqueeze(-2)
            q, k = rotate(q, positions, theta), rotate(k, positions, theta)
        length = x.shape[-2]
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        out = attention(q, k, v, causal)
        return linear(out.transpose(-3, -2).flatten(-2), self.wo)
