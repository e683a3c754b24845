"""After attention the tensor (..., heads, sequence, d_head) is viewed as (..., sequence, d_model) without moving the
heads back behind the positions. Later positions of one head end up in the answers of earlier ones."""

import math

import torch
from torch import Tensor


def run_multihead_self_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
) -> Tensor:
    *lead, seq_len, _ = in_features.shape
    d_head = d_model // num_heads

    q = torch.matmul(in_features, q_proj_weight.t()).view(*lead, seq_len, num_heads, d_head).transpose(-2, -3)
    k = torch.matmul(in_features, k_proj_weight.t()).view(*lead, seq_len, num_heads, d_head).transpose(-2, -3)
    v = torch.matmul(in_features, v_proj_weight.t()).view(*lead, seq_len, num_heads, d_head).transpose(-2, -3)

    scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(d_head)
    mask = torch.triu(torch.full((seq_len, seq_len), float("-inf"), device=q.device, dtype=q.dtype), diagonal=1)
    scores = scores + mask
    scores = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    weights = scores / scores.sum(dim=-1, keepdim=True)

    out = torch.matmul(weights, v)
    out = out.contiguous().view(*lead, seq_len, d_model)
    return torch.matmul(out, o_proj_weight.t())
