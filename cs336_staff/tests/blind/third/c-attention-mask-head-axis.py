"""One mistake: a mask with three dimensions is always given an axis for the heads with unsqueeze(1). With
three-dimensional Q and a mask (batch, queries, keys) the answer gets an additional leading dimension; with
four-dimensional Q and a mask (heads, queries, keys) it raises an error or masks the wrong sequences."""
import math

import torch


def attn(q, k, v, mask):
    att = torch.matmul(q, k.transpose(-2, -1)) * (1.0 / math.sqrt(max(1, q.size(-1))))
    if mask is not None:
        if mask.dim() == 3:
            mask = mask.unsqueeze(1)  # (B, 1, T, S), same for every head
        att = torch.where(mask, att, float("-inf"))
    if att.size(-1) > 0:
        mx = att.max(dim=-1, keepdim=True).values.detach()
        mx = mx.masked_fill(mx == float("-inf"), 0.0)
        att = torch.exp(att - mx)
        tot = att.sum(dim=-1, keepdim=True)
        att = att / tot.masked_fill(tot == 0, 1.0)
    return torch.matmul(att, v)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    if Q.dtype in (torch.float16, torch.bfloat16):
        return attn(Q.float(), K.float(), V.float(), mask).to(Q.dtype)
    return attn(Q, K, V, mask)
