import torch
from einops import einsum, rearrange
from torch import nn


def softmax(x, dim):
    y = x.to(torch.promote_types(x.dtype, torch.float32))
    y = (y - y.amax(dim, keepdim=True)).exp()
    return (y / y.sum(dim, keepdim=True)).to(x.dtype)


def scaled_dot_product_attention(Q, K, V, mask=None):
    t = torch.promote_types(Q.dtype, torch.float32)
    s = einsum(Q.to(t), K.to(t), "... q d, ... k d -> ... q k") * Q.shape[-1] ** -0.5
    if mask is not None:
        some = mask.any(-1, keepdim=True)
        s = torch.where(mask | ~some, s, -torch.inf)
        return einsum(softmax(s, -1) * some, V.to(t), "... q k, ... k d -> ... q d").to(Q.dtype)
    return einsum(softmax(s, -1), V.to(t), "... q k, ... k d -> ... q d").to(Q.dtype)


class Linear(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.weight = nn.Parameter(nn.init.trunc_normal_(torch.empty(d_out, d_in), std=(2 / (d_in + d_out)) ** 0.5))

    def forward(self, x):
        return einsum(x, self.weight, "... i, o i -> ... o")


class RotaryPositionalEmbedding(nn.Module):
    def __init__(self, theta, d_k, max_seq_len):
        super().__init__()
        angle = torch.arange(max_seq_len)[:, None] * theta ** -(torch.arange(0, d_k, 2) / d_k)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, x, token_positions):
        n = x.shape[-2]
        cos, sin = self.cos[:n], self.sin[:n]
        a, b = rearrange(x, "... (i c) -> c ... i", c=2)
        return rearrange([a * cos - b * sin, a * sin + b * cos], "c ... i -> ... (i c)")


class CausalMultiHeadSelfAttention(nn.Module):
    def __init__(self, d_model, num_heads, rope=None):
        super().__init__()
        self.q, self.k, self.v, self.o = (Linear(d_model, d_model) for _ in range(4))
        self.h, self.rope = num_heads, rope

    def forward(self, x, token_positions=None):
        q, k, v = (rearrange(p(x), "... t (h d) -> ... h t d", h=self.h) for p in (self.q, self.k, self.v))
        if self.rope is not None:
            q, k = self.rope(q, token_positions), self.rope(k, token_positions)
        mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
        return self.o(rearrange(scaled_dot_product_attention(q, k, v, mask), "... h t d -> ... t (h d)"))
