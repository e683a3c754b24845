"""Two mistakes. First: a layer normalisation of the input (mean 0, variance 1 over the features) is put before the
projections. Second: the output projection multiplies by W_O instead of by its transpose, i.e. it applies W_O^T."""
import math

import torch
from torch import Tensor, nn


class Attn(nn.Module):
    def __init__(self, h, wq, wk, wv, wo, theta=None):
        super().__init__()
        self.h, self.theta = h, theta
        self.wq, self.wk, self.wv, self.wo = wq, wk, wv, wo

    def norm(self, x: Tensor) -> Tensor:
        mu = x.mean(-1, keepdim=True)
        var = x.var(-1, keepdim=True, unbiased=False)
        return (x - mu) / torch.sqrt(var + 1e-5)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.h, -1)).transpose(-2, -3)

    def rope(self, x: Tensor, pos: Tensor) -> Tensor:
        d = x.shape[-1]
        i = torch.arange(d // 2, dtype=torch.float64, device=x.device)
        a = pos.unsqueeze(-2).unsqueeze(-1) * torch.pow(float(self.theta), -2 * i / d)
        cos, sin = a.cos().to(x.dtype), a.sin().to(x.dtype)
        u, w = x[..., 0::2], x[..., 1::2]
        return torch.stack([u * cos - w * sin, u * sin + w * cos], dim=-1).flatten(-2)

    def forward(self, x: Tensor, pos: Tensor | None = None) -> Tensor:
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        y = self.norm(x.to(wide))
        q = self.split(y @ self.wq.to(wide).T)
        k = self.split(y @ self.wk.to(wide).T)
        v = self.split(y @ self.wv.to(wide).T)
        if self.theta is not None:
            q, k = self.rope(q, pos), self.rope(k, pos)
        s = q @ k.mT / math.sqrt(q.shape[-1])
        n = s.shape[-1]
        s = s.masked_fill(torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1), -math.inf)
        e = torch.exp(s - s.amax(-1, keepdim=True))
        o = (e / e.sum(-1, keepdim=True)) @ v
        return (o.transpose(-2, -3).flatten(-2) @ self.wo.to(wide)).to(x.dtype)


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
):
    return Attn(num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)(in_features)


def run_multihead_self_attention_with_rope(
    d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features,
    token_positions=None,
):
    if token_positions is None:
        token_positions = torch.arange(in_features.shape[-2], device=in_features.device)
    attn = Attn(num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, theta)
    return attn(in_features, token_positions)
