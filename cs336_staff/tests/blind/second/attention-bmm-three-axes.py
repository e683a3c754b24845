"""Both products are torch.bmm, which takes exactly three dimensions with equal batches.

Inputs with two, four or five dimensions raise, and so do batches of size 1 that should broadcast.
"""

import math

import torch


def softmax(x):
    if x.numel() == 0:
        return x
    m = x.detach().max(dim=-1, keepdim=True)[0]
    m = torch.where(torch.isinf(m) & (m < 0), torch.zeros_like(m), m)
    e = (x - m).exp()
    s = e.sum(dim=-1, keepdim=True)
    return e / torch.where(s == 0, torch.ones_like(s), s)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    dtype = Q.dtype
    if dtype in (torch.float16, torch.bfloat16):
        Q, K, V = Q.float(), K.float(), V.float()
    attn = torch.bmm(Q, K.transpose(1, 2)) / math.sqrt(Q.size(2))
    if mask is not None:
        attn = attn.masked_fill(~mask, float("-inf"))
    return torch.bmm(softmax(attn), V).to(dtype)
