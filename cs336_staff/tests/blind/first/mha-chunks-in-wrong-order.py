"""The product of the stacked weights is unpacked as key, query, value although it was stacked as query, key, value:
the queries ask with the key weights and the other way round."""

import math

import torch
from torch import Tensor


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    x1, x2 = x.unflatten(-1, (-1, 2)).unbind(dim=-1)
    return torch.stack((cos * x1 - sin * x2, sin * x1 + cos * x2), dim=-1).flatten(start_dim=-2)


def attend(k: Tensor, q: Tensor, v: Tensor) -> Tensor:
    length = q.shape[-2]
    allowed = torch.tril(torch.ones((length, length), dtype=torch.bool, device=q.device))
    logits = torch.einsum("...qd,...kd->...qk", q, k) / math.sqrt(q.shape[-1])
    logits = torch.where(allowed, logits, float("-inf"))
    probs = torch.exp(logits - logits.amax(dim=-1, keepdim=True))
    probs = probs / probs.sum(dim=-1, keepdim=True)
    return torch.einsum("...qk,...kd->...qd", probs, v)


def project(x: Tensor, weights: tuple[Tensor, Tensor, Tensor], num_heads: int) -> tuple[Tensor, ...]:
    kqv = x @ torch.cat(weights, dim=0).T
    return tuple(part.unflatten(-1, (num_heads, -1)).transpose(-2, -3) for part in kqv.chunk(3, dim=-1))


def run_multihead_self_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
) -> Tensor:
    k, q, v = project(in_features, (q_proj_weight, k_proj_weight, v_proj_weight), num_heads)
    return attend(k, q, v).transpose(-2, -3).flatten(-2) @ o_proj_weight.T


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
    k, q, v = project(in_features, (q_proj_weight, k_proj_weight, v_proj_weight), num_heads)
    if token_positions is None:
        token_positions = torch.arange(in_features.shape[-2], device=q.device)
    d_head = d_model // num_heads
    freq = theta ** (-torch.arange(0, d_head, 2, dtype=q.dtype, device=q.device) / d_head)
    table = torch.outer(torch.arange(max_seq_len, dtype=q.dtype, device=q.device), freq)
    angles = table[token_positions].unsqueeze(-3)  # one more axis for the heads
    k, q = rotate(k, angles.cos(), angles.sin()), rotate(q, angles.cos(), angles.sin())
    return attend(k, q, v).transpose(-2, -3).flatten(-2) @ o_proj_weight.T
