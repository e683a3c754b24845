"""Wrong: the queries and keys are turned before they are split into heads, with d_k = d_model, so that the angles fall off
along all of d_model and every head but one gets angles of other frequencies than theta^(-2i/d_head). With one head it is
right."""

import math

import torch
from torch import Tensor


def rope(x, theta, d_k, positions):
    out = torch.zeros_like(x)
    result = []
    for i in range(d_k // 2):
        angle = positions.double() * theta ** (-2 * i / d_k)
        c = torch.cos(angle).to(out.dtype)
        s = torch.sin(angle).to(out.dtype)
        result.append(x[..., 2 * i] * c - x[..., 2 * i + 1] * s)
        result.append(x[..., 2 * i] * s + x[..., 2 * i + 1] * c)
    return torch.stack(result, dim=-1)


def attention_of_one_head(q, k, v):
    n = q.shape[-2]
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    allowed = torch.tril(torch.ones(n, n)).bool()
    scores = scores.masked_fill(~allowed, -math.inf)
    e = torch.exp(scores - scores.max(dim=-1, keepdim=True).values.detach())
    return (e / e.sum(dim=-1, keepdim=True)) @ v


def run_multihead_self_attention_with_rope(
    d_model: int,
    num_heads: int,
    max_seq_len: int,
    theta: float,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
    token_positions: Tensor | None = None,
) -> Tensor:
    x = in_features
    if token_positions is None:
        token_positions = torch.arange(x.shape[-2])
    q = rope(x @ q_proj_weight.T, theta, d_model, token_positions)
    k = rope(x @ k_proj_weight.T, theta, d_model, token_positions)
    v = x @ v_proj_weight.T
    d_head = d_model // num_heads
    heads = []
    for h in range(num_heads):
        part = slice(h * d_head, (h + 1) * d_head)
        heads.append(attention_of_one_head(q[..., part], k[..., part], v[..., part]))
    return torch.cat(heads, dim=-1) @ o_proj_weight.T
