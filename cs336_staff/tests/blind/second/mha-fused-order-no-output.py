"""Two mistakes. The fused product of W_Q, W_K, W_V is unpacked as k, q, v: queries and keys are exchanged.

And the output projection is missing: the joined heads are returned as they are.
"""

import torch


def split_heads(t, h):
    return t.reshape(*t.shape[:-1], h, t.shape[-1] // h).transpose(-3, -2)


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
):
    x = in_features
    qkv = torch.matmul(x, torch.cat((q_proj_weight, k_proj_weight, v_proj_weight)).t())
    key, query, value = torch.split(qkv, d_model, dim=-1)
    query, key, value = (split_heads(t, num_heads) for t in (query, key, value))
    if x.dtype in (torch.float16, torch.bfloat16):
        query, key, value = query.float(), key.float(), value.float()

    w = torch.matmul(query, key.transpose(-1, -2)) / (d_model // num_heads) ** 0.5
    n = x.shape[-2]
    bias = torch.tril(torch.ones(n, n, device=x.device)).bool()
    w = torch.where(bias, w, torch.full((), float("-inf"), dtype=w.dtype, device=w.device))
    w = torch.exp(w - w.detach().max(dim=-1, keepdim=True).values)
    w = w / w.sum(dim=-1, keepdim=True)
    a = torch.matmul(w, value).transpose(-3, -2)
    return a.reshape(*x.shape[:-1], d_model).to(x.dtype)
