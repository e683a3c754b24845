"""The heads are joined with view right after a transpose, whose result is not contiguous: a RuntimeError.

It raises whenever there is more than one head and more than one position.
"""

import math

import torch
from torch import nn


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model, dtype, device):
        super().__init__()
        assert d_model % h == 0
        self.d_k = d_model // h
        self.h = h
        self.linears = nn.ParameterList(
            nn.Parameter(torch.empty(d_model, d_model, dtype=dtype, device=device)) for _ in range(4)
        )

    def forward(self, x):
        lead, n = x.shape[:-2], x.size(-2)
        query, key, value = [
            torch.matmul(x, w.t()).view(*lead, n, self.h, self.d_k).transpose(-2, -3)
            for w in list(self.linears)[:3]
        ]
        if x.dtype in (torch.float16, torch.bfloat16):
            query, key, value = query.float(), key.float(), value.float()
        scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(self.d_k)
        subsequent = torch.triu(torch.ones(n, n, device=x.device), diagonal=1).bool()
        scores = scores.masked_fill(subsequent, float("-inf"))
        p = torch.exp(scores - scores.detach().max(-1, keepdim=True)[0])
        p = p / p.sum(-1, keepdim=True)
        out = torch.matmul(p, value).to(x.dtype)
        out = out.transpose(-2, -3).view(*lead, n, self.h * self.d_k)
        return torch.matmul(out, self.linears[3].t())


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
):
    layer = MultiHeadedAttention(num_heads, d_model, q_proj_weight.dtype, q_proj_weight.device)
    for p, w in zip(layer.linears, (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)):
        p.data.copy_(w)
    return layer(in_features)
