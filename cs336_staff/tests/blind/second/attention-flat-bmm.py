"""Attention by folding all leading dimensions into one and using torch.bmm.

Wrong: Q, K and V are all reshaped to the number of batches of Q, nothing is broadcast. As soon as the keys and values (or the
mask) have other leading dimensions than the queries, e.g. one key/value head for many query heads, the reshape raises a
RuntimeError.
"""

import math

import torch


def softmax(x):
    if x.shape[-1] == 0:
        return x
    m = x.max(-1, keepdim=True)[0]
    m = m.masked_fill(m == float("-inf"), 0)
    e = torch.exp(x - m)
    s = e.sum(-1, keepdim=True)
    return e / s.masked_fill(s == 0, 1)


def scaled_dot_product_attention(Q, K, V, mask=None):
    dtype = Q.dtype
    if dtype in (torch.float16, torch.bfloat16):
        Q = Q.float()
        K = K.float()
        V = V.float()

    batch_shape = Q.shape[:-2]
    B = math.prod(batch_shape)
    Tq, d_k = Q.shape[-2:]
    Tk, d_v = V.shape[-2:]

    q = Q.reshape(B, Tq, d_k)
    k = K.reshape(B, Tk, d_k)
    v = V.reshape(B, Tk, d_v)

    att = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(d_k)
    if mask is not None:
        mask = mask.expand(*batch_shape, Tq, Tk).reshape(B, Tq, Tk)
        att = att.masked_fill(~mask, float("-inf"))
    att = softmax(att)
    y = torch.bmm(att, v)
    return y.reshape(*batch_shape, Tq, d_v).to(dtype)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return scaled_dot_product_attention(Q, K, V, mask)
