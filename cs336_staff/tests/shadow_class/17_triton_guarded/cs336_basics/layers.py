import torch
from torch import nn

from cs336_basics.attention import sdpa


class Linear(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in))
        nn.init.trunc_normal_(self.weight, std=(2 / (d_in + d_out)) ** 0.5)

    def forward(self, x):
        return torch.einsum("...i,oi->...o", x, self.weight)


class RoPE(nn.Module):
    def __init__(self, theta, d_k, max_seq_len):
        super().__init__()
        ang = torch.einsum("p,i->pi", torch.arange(max_seq_len).float(), theta ** (-torch.arange(0, d_k, 2).float() / d_k))
        self.register_buffer("cs", torch.stack([ang.cos(), ang.sin()]), persistent=False)

    def forward(self, x, pos):
        c, s = self.cs[:, pos]
        e, o = x[..., ::2], x[..., 1::2]
        return torch.cat([(e * c - o * s).unsqueeze(-1), (e * s + o * c).unsqueeze(-1)], -1).flatten(-2)


class MHSA(nn.Module):
    def __init__(self, d, h, rope=None):
        super().__init__()
        self.qkv, self.out, self.h, self.rope = Linear(d, 3 * d), Linear(d, d), h, rope

    def forward(self, x, pos=None):
        T = x.shape[-2]
        q, k, v = (t.unflatten(-1, (self.h, -1)).transpose(-2, -3) for t in self.qkv(x).chunk(3, -1))
        if self.rope is not None:
            pos = torch.arange(T) if pos is None else pos
            q, k = self.rope(q, pos.unsqueeze(-2)), self.rope(k, pos.unsqueeze(-2))
        return self.out(sdpa(q, k, v, torch.ones(T, T, dtype=torch.bool).tril()).transpose(-2, -3).flatten(-2))
