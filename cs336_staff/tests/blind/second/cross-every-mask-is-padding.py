"""Every mask is extended like a padding mask (batch, keys), with two new axes in front of the keys.

A mask (batch, queries, keys) or (batch, heads, queries, keys) then has too many dimensions, and expanding it raises.
"""

import math

import torch


def run_multihead_attention(
    d_model,
    num_heads,
    q_proj_weight,
    k_proj_weight,
    v_proj_weight,
    o_proj_weight,
    query,
    key,
    value,
    mask=None,
):
    head_dim = d_model // num_heads

    def shape(x, w):
        return torch.matmul(x, w.t()).reshape(*x.shape[:-1], num_heads, head_dim).transpose(-3, -2)

    q, k, v = shape(query, q_proj_weight), shape(key, k_proj_weight), shape(value, v_proj_weight)
    if query.dtype in (torch.float16, torch.bfloat16):
        q, k, v = q.float(), k.float(), v.float()
    scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(head_dim)

    if mask is not None:
        # [batch, keys] -> [batch, 1, 1, keys] -> [batch, heads, queries, keys]
        extended_attention_mask = mask[..., None, None, :].expand(scores.shape)
        scores = scores.masked_fill(~extended_attention_mask, float("-inf"))

    top = scores.detach().amax(dim=-1, keepdim=True)
    probs = torch.exp(scores - top.masked_fill(top == float("-inf"), 0.0))
    total = probs.sum(dim=-1, keepdim=True)
    probs = probs / total.masked_fill(total == 0, 1.0)
    context = torch.matmul(probs, v).to(query.dtype)
    context = context.transpose(-3, -2).reshape(*query.shape[:-1], d_model)
    return torch.matmul(context, o_proj_weight.t())
