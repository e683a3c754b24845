"""Wrong, twice: RoPE turns the values, too, and not the queries and keys alone; and the causal mask compares the token
positions in place of the places in the sequence, so that with token positions that do not grow a token sees later ones or
misses earlier ones."""

import math

import torch
from einops import einsum, rearrange
from torch import Tensor


def _rotate(x: Tensor, angles: Tensor) -> Tensor:
    wide = torch.promote_types(x.dtype, torch.float32)
    cos, sin = angles.cos().to(wide), angles.sin().to(wide)
    a, b = rearrange(x.to(wide), "... (pair two) -> two ... pair", two=2)
    return rearrange([a * cos - b * sin, a * sin + b * cos], "two ... pair -> ... (pair two)").to(x.dtype)


def _attend(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> Tensor:
    wide = torch.promote_types(Q.dtype, torch.float32)
    scores = einsum(Q.to(wide), K.to(wide), "... q d, ... k d -> ... q k") / math.sqrt(Q.shape[-1])
    scores = torch.where(mask, scores, -math.inf)
    weights = torch.exp(scores - scores.amax(-1, keepdim=True).detach())  # each position sees itself
    weights = weights / weights.sum(-1, keepdim=True)
    return einsum(weights, V.to(wide), "... q k, ... k d -> ... q d").to(Q.dtype)


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
    if token_positions is None:
        token_positions = torch.arange(in_features.shape[-2])
    d_head = d_model // num_heads
    stacked = torch.stack([q_proj_weight, k_proj_weight, v_proj_weight])
    stacked = rearrange(stacked, "three (h d) m -> three h d m", h=num_heads)
    qkv = einsum(in_features, stacked, "... s m, three h d m -> three ... h s d")
    frequencies = theta ** (-torch.arange(0, d_head, 2, dtype=torch.float64) / d_head)
    angles = token_positions[..., None, :, None].double() * frequencies
    Q, K, V = (_rotate(part, angles) for part in qkv)
    mask = token_positions[..., None, :, None] >= token_positions[..., None, None, :]
    return rearrange(_attend(Q, K, V, mask), "... h s d -> ... s (h d)") @ o_proj_weight.T
