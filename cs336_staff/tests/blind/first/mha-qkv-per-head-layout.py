"""The weights are stacked as all queries, all keys, all values, but the product is taken apart as if each head had
its query, key and value side by side. Heads get rows of the wrong kind. Right only for one head."""

import torch
from einops import rearrange
from torch import Tensor


def softmax(x: Tensor, dim: int) -> Tensor:
    x = (x - x.amax(dim, keepdim=True)).exp()
    return x / x.sum(dim, keepdim=True)


def turn(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    d = x.shape[-1]
    angle = positions.unsqueeze(-1) / theta ** (torch.arange(0, d, 2, device=x.device, dtype=x.dtype) / d)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)


def forward(x: Tensor, qkv_weight: Tensor, o_weight: Tensor, heads: int, theta=None, positions=None) -> Tensor:
    qkv = x @ qkv_weight.mT
    q, k, v = rearrange(qkv, "... s (h three d) -> three ... h s d", three=3, h=heads)
    s = x.shape[-2]
    if theta is not None:
        positions = torch.arange(s, device=x.device) if positions is None else positions
        q = turn(q, positions.unsqueeze(-2), theta)
        k = turn(k, positions.unsqueeze(-2), theta)
    mask = torch.tril(torch.ones(s, s, device=x.device, dtype=torch.bool))
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, -torch.inf)
    out = rearrange(softmax(scores, -1) @ v, "... h s d -> ... s (h d)")
    return out @ o_weight.mT


def run_multihead_self_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
) -> Tensor:
    qkv_proj_weight = torch.cat((q_proj_weight, k_proj_weight, v_proj_weight))
    return forward(in_features, qkv_proj_weight, o_proj_weight, num_heads)


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
    qkv_proj_weight = torch.cat((q_proj_weight, k_proj_weight, v_proj_weight))
    return forward(in_features, qkv_proj_weight, o_proj_weight, num_heads, theta, token_positions)
