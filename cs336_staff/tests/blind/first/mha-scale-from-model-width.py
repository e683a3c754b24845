"""The logits of each head are divided by the root of d_model instead of the root of d_head. Right only for one head."""

import torch
from torch import Tensor


class CausalMultiHeadSelfAttention:
    def __init__(self, d_model: int, num_heads: int, theta: float | None = None):
        self.num_heads = num_heads
        self.head_dim = d_model // num_heads
        self.scale = d_model**-0.5
        self.theta = theta

    def rope(self, x: Tensor, positions: Tensor) -> Tensor:
        i = torch.arange(self.head_dim // 2, device=x.device, dtype=x.dtype)
        angle = positions[..., None, :, None] * self.theta ** (-2 * i / self.head_dim)
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1).flatten(-2)

    def __call__(self, x: Tensor, Wq: Tensor, Wk: Tensor, Wv: Tensor, Wo: Tensor, positions=None) -> Tensor:
        T = x.shape[-2]
        Q, K, V = ((x @ W.T).unflatten(-1, (self.num_heads, self.head_dim)).movedim(-2, -3) for W in (Wq, Wk, Wv))
        if self.theta is not None:
            if positions is None:
                positions = torch.arange(T, device=x.device)
            Q, K = self.rope(Q, positions), self.rope(K, positions)

        att = (Q * self.scale) @ K.mT
        steps = torch.arange(T, device=x.device)
        att = att.masked_fill(steps[None, :] > steps[:, None], float("-inf"))
        att = (att - att.amax(-1, keepdim=True)).exp()
        att = att / att.sum(-1, keepdim=True)
        return (att @ V).movedim(-3, -2).flatten(-2) @ Wo.T


def run_multihead_self_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
) -> Tensor:
    attn = CausalMultiHeadSelfAttention(d_model, num_heads)
    return attn(in_features, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)


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
    attn = CausalMultiHeadSelfAttention(d_model, num_heads, theta)
    return attn(in_features, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, token_positions)
