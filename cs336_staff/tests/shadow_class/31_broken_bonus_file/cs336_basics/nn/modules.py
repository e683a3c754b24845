import torch
from einops import einsum, rearrange
from torch import nn

from cs336_basics.nn.functional import scaled_dot_product_attention


class Linear(nn.Module):
    def __init__(self, d_in, d_out, device=None, dtype=None):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in, device=device, dtype=dtype))
        nn.init.xavier_normal_(self.weight)

    def forward(self, x):
        return einsum(self.weight, x, "o i, ... i -> ... o")


class RotaryPositionalEmbedding(nn.Module):
    def __init__(self, theta, d_k, max_seq_len):
        super().__init__()
        f = theta ** -(torch.arange(0, d_k, 2) / d_k)
        a = torch.arange(max_seq_len)[:, None] * f
        self.register_buffer("cos", a.cos(), persistent=False)
        self.register_buffer("sin", a.sin(), persistent=False)

    def forward(self, x, p):
        x = rearrange(x, "... (i two) -> ... i two", two=2)
        cos, sin = self.cos[p], self.sin[p]
        y = torch.stack([x[..., 0] * cos - x[..., 1] * sin, x[..., 0] * sin + x[..., 1] * cos], -1)
        return rearrange(y, "... i two -> ... (i two)")


class CausalMultiHeadSelfAttention(nn.Module):
    def __init__(self, d_model, num_heads, rope=None):
        super().__init__()
        self.qkv = nn.Parameter(torch.empty(3, d_model, d_model))
        self.out = nn.Parameter(torch.empty(d_model, d_model))
        self.h, self.rope = num_heads, rope

    def forward(self, x, p=None):
        q, k, v = rearrange(einsum(self.qkv, x, "n o i, ... t i -> n ... t o"), "n ... t (h d) -> n ... h t d", h=self.h)
        if self.rope is not None:
            p = torch.arange(x.shape[-2]) if p is None else p
            q, k = self.rope(q, p[..., None, :]), self.rope(k, p[..., None, :])
        mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
        y = rearrange(scaled_dot_product_attention(q, k, v, mask), "... h t d -> ... t (h d)")
        return einsum(self.out, y, "o i, ... t i -> ... t o")
