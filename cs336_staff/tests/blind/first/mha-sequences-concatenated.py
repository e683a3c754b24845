"""To allow any number of leading dimensions all positions of all sequences are flattened into one axis, which then
goes into attention as one long sequence: each sequence sees those before it in the batch."""

import torch
from torch import Tensor


def mha(tokens: Tensor, weights: list[Tensor], num_heads: int, angles: Tensor | None = None) -> Tensor:
    """Causal attention for `tokens` (n, d_model)."""
    n, d_model = tokens.shape
    wq, wk, wv, wo = weights
    q = (tokens @ wq.T).view(n, num_heads, -1).permute(1, 0, 2)
    k = (tokens @ wk.T).view(n, num_heads, -1).permute(1, 0, 2)
    v = (tokens @ wv.T).view(n, num_heads, -1).permute(1, 0, 2)
    if angles is not None:
        q, k = rotate(q, angles), rotate(k, angles)
    scores = torch.bmm(q, k.permute(0, 2, 1)) / (d_model // num_heads) ** 0.5
    mask = torch.ones(n, n, device=tokens.device).tril().bool()
    scores = scores.masked_fill(~mask, float("-inf"))
    scores = torch.exp(scores - scores.amax(dim=2, keepdim=True))
    scores = scores / scores.sum(dim=2, keepdim=True)
    return torch.bmm(scores, v).permute(1, 0, 2).reshape(n, d_model) @ wo.T


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    a, b = x[:, :, 0::2], x[:, :, 1::2]
    turned = (a * torch.cos(angles) - b * torch.sin(angles), a * torch.sin(angles) + b * torch.cos(angles))
    return torch.stack(turned, dim=3).flatten(2)


def run_multihead_self_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
) -> Tensor:
    weights = [q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight]
    out = mha(in_features.reshape(-1, d_model), weights, num_heads)
    return out.reshape(in_features.shape)


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
    weights = [q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight]
    if token_positions is None:
        token_positions = torch.arange(in_features.shape[-2], device=in_features.device)
    positions = token_positions.expand(in_features.shape[:-1]).reshape(-1)
    d_head = d_model // num_heads
    i = torch.arange(0, d_head, 2, dtype=in_features.dtype, device=in_features.device)
    angles = torch.outer(positions.to(in_features.dtype), theta ** (-i / d_head))
    out = mha(in_features.reshape(-1, d_model), weights, num_heads, angles)
    return out.reshape(in_features.shape)
