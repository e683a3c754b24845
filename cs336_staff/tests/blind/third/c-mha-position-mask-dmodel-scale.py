"""Two mistakes, both with RoPE. First: the causal mask compares the token positions instead of the places in the
sequence, so with positions that are not increasing, or are equal, later places are seen and earlier ones hidden. Second:
the scores are divided by sqrt(d_model) instead of sqrt(d_head)."""
import math

import torch
from einops import einsum, rearrange
from torch import Tensor


def turn(x: Tensor, angle: Tensor) -> Tensor:
    c, s = torch.cos(angle).to(x.dtype), torch.sin(angle).to(x.dtype)
    x = rearrange(x, "... (i two) -> ... i two", two=2)
    y = torch.stack((x[..., 0] * c - x[..., 1] * s, x[..., 0] * s + x[..., 1] * c), dim=-1)
    return rearrange(y, "... i two -> ... (i two)")


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
        token_positions = torch.arange(x.shape[-2], device=x.device)
    compute = torch.float64 if x.dtype == torch.float64 else torch.float32

    def heads(w: Tensor) -> Tensor:
        y = einsum(x.to(compute), w.to(compute), "... s i, o i -> ... s o")
        return rearrange(y, "... s (h d) -> ... h s d", h=num_heads)

    q, k, v = heads(q_proj_weight), heads(k_proj_weight), heads(v_proj_weight)
    d = d_model // num_heads
    freq = theta ** (-torch.arange(0, d, 2, dtype=torch.float64, device=x.device) / d)
    angle = token_positions[..., None, :, None].double() * freq
    q, k = turn(q, angle), turn(k, angle)

    # a token sees tokens whose position is not larger
    mask = token_positions[..., None, :, None] >= token_positions[..., None, None, :]
    scores = einsum(q, k, "... q d, ... k d -> ... q k") / math.sqrt(d_model)
    scores = scores.masked_fill(~mask, -math.inf)
    w = torch.exp(scores - scores.amax(-1, keepdim=True))
    w = w / w.sum(-1, keepdim=True)
    out = rearrange(einsum(w, v, "... q k, ... k d -> ... q d"), "... h s d -> ... s (h d)")
    return einsum(out, o_proj_weight.to(compute), "... s i, o i -> ... s o").to(x.dtype)
