"""Attention after the BERT code, with an additive "extended attention mask".

Wrong: hidden keys get -10000 added to their score instead of -inf. With ordinary scores the weight underflows to 0, but with
scores of the order of ten thousand the hidden keys keep (or even win) weight.
"""

import math

import torch


def get_extended_attention_mask(attention_mask, dtype):
    return (1.0 - attention_mask.to(dtype)) * -10000.0


def _softmax(t):
    if t.shape[-1] == 0:
        return t
    t = t - t.amax(dim=-1, keepdim=True)
    e = t.exp()
    return e / e.sum(dim=-1, keepdim=True)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    compute = torch.promote_types(Q.dtype, torch.float32)
    query_layer, key_layer, value_layer = Q.to(compute), K.to(compute), V.to(compute)

    attention_scores = torch.matmul(query_layer, key_layer.transpose(-1, -2))
    attention_scores = attention_scores / math.sqrt(query_layer.shape[-1])
    if mask is not None:
        attention_scores = attention_scores + get_extended_attention_mask(mask, compute)

    attention_probs = _softmax(attention_scores)
    if mask is not None:
        # rows that see nothing at all must be zero
        attention_probs = attention_probs * mask.any(dim=-1, keepdim=True)

    context_layer = torch.matmul(attention_probs, value_layer)
    return context_layer.to(Q.dtype)
