"""The features are cut into heads before the projection, so that each head sees only its own part of x and only the
diagonal blocks of the weights are used. Right only for one head."""

import math

import torch
from torch import Tensor


def one_head(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor) -> Tensor:
    q, k, v = x @ wq.T, x @ wk.T, x @ wv.T
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    t = x.shape[-2]
    scores = scores.masked_fill(torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1), -math.inf)
    e = (scores - scores.amax(-1, keepdim=True)).exp()
    return (e / e.sum(-1, keepdim=True)) @ v


def run_multihead_self_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
) -> Tensor:
    d_head = d_model // num_heads
    outputs = []
    for h in range(num_heads):
        part = slice(h * d_head, (h + 1) * d_head)
        outputs.append(
            one_head(
                in_features[..., part],
                q_proj_weight[part, part],
                k_proj_weight[part, part],
                v_proj_weight[part, part],
            )
        )
    return torch.cat(outputs, dim=-1) @ o_proj_weight.T
