"""Queries and keys are turned while they are still d_model wide, before they are split into heads. The frequencies
run through all heads once instead of through each head."""

import torch
from einops import einsum, rearrange
from torch import Tensor


class Rope:
    def __init__(self, theta: float, dim: int, max_seq_len: int, like: Tensor):
        inv = theta ** (-torch.arange(0, dim, 2, dtype=like.dtype, device=like.device) / dim)
        angles = torch.arange(max_seq_len, dtype=like.dtype, device=like.device)[:, None] * inv
        self.cos, self.sin = angles.cos(), angles.sin()

    def __call__(self, x: Tensor, positions: Tensor) -> Tensor:
        cos, sin = self.cos[positions], self.sin[positions]
        even, odd = rearrange(x, "... (pair two) -> two ... pair", two=2)
        return rearrange([even * cos - odd * sin, even * sin + odd * cos], "two ... pair -> ... (pair two)")


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    logits = einsum(q, k, "... i d, ... j d -> ... i j") / q.shape[-1] ** 0.5
    visible = torch.ones(logits.shape[-2:], dtype=torch.bool, device=q.device).tril()
    logits = torch.where(visible, logits, -torch.inf)
    p = torch.exp(logits - logits.amax(-1, keepdim=True))
    p = p / p.sum(-1, keepdim=True)
    return einsum(p, v, "... i j, ... j d -> ... i d")


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
    q = einsum(in_features, q_proj_weight, "... s d_in, d_out d_in -> ... s d_out")
    k = einsum(in_features, k_proj_weight, "... s d_in, d_out d_in -> ... s d_out")
    v = einsum(in_features, v_proj_weight, "... s d_in, d_out d_in -> ... s d_out")

    if token_positions is None:
        token_positions = torch.arange(in_features.shape[-2], device=in_features.device)
    rope = Rope(theta, d_model, max_seq_len, in_features)
    q = rope(q, token_positions)
    k = rope(k, token_positions)

    q, k, v = (rearrange(t, "... s (h d) -> ... h s d", h=num_heads) for t in (q, k, v))
    heads = rearrange(attention(q, k, v), "... h s d -> ... s (h d)")
    return einsum(heads, o_proj_weight, "... s d_in, d_out d_in -> ... s d_out")
