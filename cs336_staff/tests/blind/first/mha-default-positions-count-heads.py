"""RoPE is applied while the heads are still behind the positions, and its default positions count axis -2, which at
that point is the heads: without `token_positions` each head is turned by its own number, and the order of the tokens
is lost."""

import torch
from einops import einsum, rearrange
from torch import Tensor


def apply_rope(x: Tensor, theta: float, positions: Tensor | None = None) -> Tensor:
    d = x.shape[-1]
    if positions is None:
        positions = torch.arange(x.shape[-2], device=x.device)
    freqs = 1.0 / theta ** (torch.arange(0, d, 2, device=x.device, dtype=x.dtype) / d)
    angles = positions.unsqueeze(-1) * freqs
    x1, x2 = x[..., ::2], x[..., 1::2]
    rotated = torch.stack([x1 * angles.cos() - x2 * angles.sin(), x1 * angles.sin() + x2 * angles.cos()], dim=-1)
    return rearrange(rotated, "... pair two -> ... (pair two)")


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
    def heads(weight: Tensor) -> Tensor:
        return rearrange(in_features @ weight.T, "... seq (head d) -> ... seq head d", head=num_heads)

    # the same position for all heads
    positions = token_positions.unsqueeze(-1) if token_positions is not None else None
    q = apply_rope(heads(q_proj_weight), theta, positions)
    k = apply_rope(heads(k_proj_weight), theta, positions)
    v = heads(v_proj_weight)

    scores = einsum(q, k, "... i head d, ... j head d -> ... head i j") / (d_model // num_heads) ** 0.5
    n = in_features.shape[-2]
    causal = torch.ones(n, n, dtype=torch.bool, device=scores.device).tril()
    scores = scores.masked_fill(~causal, float("-inf"))
    scores = torch.exp(scores - scores.amax(-1, keepdim=True))
    weights = scores / scores.sum(-1, keepdim=True)
    out = einsum(weights, v, "... head i j, ... j head d -> ... i head d")
    return rearrange(out, "... seq head d -> ... seq (head d)") @ o_proj_weight.T
