from __future__ import annotations

import torch
from torch import nn

Layer = nn.Linear | nn.Embedding


class Projection(nn.Module):
    """Stores the matrix as (d_in, d_out), as in JAX."""

    def __init__(self, d_in: int, d_out: int, like: nn.Linear | None = None):
        super().__init__()
        if like is not None and not isinstance(like, nn.Linear):
            raise TypeError(f"expected an nn.Linear, got {type(like)}")
        self.kernel = nn.Parameter(torch.empty(d_in, d_out) if like is None else like.weight.T.clone())
        nn.init.trunc_normal_(self.kernel, std=(2 / (d_in + d_out)) ** 0.5)

    def forward(self, x):
        return x @ self.kernel


def initialise(module: nn.Module) -> nn.Module:
    layer: nn.Linear | Projection
    for layer in module.modules():
        if isinstance(layer, (nn.Linear, nn.LayerNorm)):
            layer.reset_parameters()
        elif isinstance(layer, Projection):
            nn.init.normal_(layer.kernel)
    return module


def softmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    t = torch.promote_types(torch.float32, x.dtype)
    z = torch.exp(x.to(t) - x.to(t).amax(dim, keepdim=True))
    return (z / z.sum(dim, keepdim=True)).to(x.dtype)


def attention(q, k, v, mask=None):
    t = torch.promote_types(torch.float32, q.dtype)
    logits = q.to(t) @ k.to(t).transpose(-1, -2) / k.shape[-1] ** 0.5
    if mask is not None:
        rows = mask.sum(-1, keepdim=True) > 0
        logits = torch.where(mask, logits, -torch.inf)
        logits = torch.where(rows, logits, 1.0)
        return torch.where(rows, softmax(logits, -1) @ v.to(t), 0.0).to(q.dtype)
    return (softmax(logits, -1) @ v.to(t)).to(q.dtype)


class RoPE(nn.Module):
    def __init__(self, theta, d_k, max_seq_len):
        super().__init__()
        self.angles = torch.arange(max_seq_len)[:, None] * theta ** (torch.arange(0, d_k, 2) / -d_k)

    def forward(self, x, positions):
        a = self.angles[positions]
        x0, x1 = x[..., ::2], x[..., 1::2]
        return torch.stack((a.cos() * x0 - a.sin() * x1, a.sin() * x0 + a.cos() * x1), dim=-1).flatten(-2)


class SelfAttention(nn.Module):
    def __init__(self, d_model, num_heads, rope=None):
        super().__init__()
        self.projections = nn.ModuleList(Projection(d_model, d_model) for _ in range(4))
        self.num_heads, self.rope = num_heads, rope

    def forward(self, x, positions=None):
        q, k, v = (p(x).unflatten(-1, (self.num_heads, -1)).transpose(-2, -3) for p in self.projections[:3])
        if self.rope is not None:
            q, k = self.rope(q, positions.unsqueeze(-2)), self.rope(k, positions.unsqueeze(-2))
        causal = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
        return self.projections[3](attention(q, k, v, causal).transpose(-2, -3).flatten(-2))
