"""Attention, after a GPT tutorial.

Wrong, first: the mask is multiplied into the weights after the softmax and nothing is normalised again, so masked rows sum to
less than 1. Wrong, second: without a mask a causal one is made up, so with mask=None the queries do not see the keys
after their own position, although they should see all of them.
"""

import math

import torch


def softmax(x, dim):
    if x.shape[dim] == 0:
        return x
    x = x - torch.max(x, dim=dim, keepdim=True).values
    ex = torch.exp(x)
    return ex / torch.sum(ex, dim=dim, keepdim=True)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    dtype = Q.dtype
    if dtype == torch.float16 or dtype == torch.bfloat16:
        Q, K, V = Q.float(), K.float(), V.float()
    T, S = Q.size(-2), K.size(-2)

    wei = Q @ K.transpose(-2, -1) / math.sqrt(Q.size(-1))
    wei = softmax(wei, dim=-1)

    if mask is None:
        mask = torch.tril(torch.ones(T, S, device=Q.device)).bool()
    wei = wei * mask.to(wei.dtype)  # no peeking

    return (wei @ V).to(dtype)
