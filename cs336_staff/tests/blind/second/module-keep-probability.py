"""Attention module with dropout in training.

Wrong, first: `dropout` is used as the probability of keeping a weight, so a share of 1 - p of the weights is dropped instead of p
(while those kept are still divided by 1 - p). Wrong, second: the weights that are returned are those from before the
dropout, not the ones the output is made with.
"""

import math

import torch
from torch import nn


def softmax(x, dim):
    if x.shape[dim] == 0:
        return x
    m = x.amax(dim, keepdim=True)
    m = torch.where(m == -math.inf, torch.zeros_like(m), m)
    e = torch.exp(x - m)
    z = e.sum(dim, keepdim=True)
    return e / torch.where(z == 0, torch.ones_like(z), z)


class ScaledDotProductAttention(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        if not 0.0 <= dropout < 1.0:
            raise ValueError("dropout must be in [0, 1)")
        self.p = dropout

    def dropout(self, w):
        if not self.training or self.p == 0.0:
            return w
        keep = torch.bernoulli(torch.full_like(w, self.p))
        return w * keep / (1.0 - self.p)

    def forward(self, Q, K, V, mask=None, *, return_weights=False, return_scores=False):
        wide = torch.promote_types(Q.dtype, torch.float32)
        scores = Q.to(wide) @ K.to(wide).mT / math.sqrt(Q.shape[-1])
        if mask is not None:
            scores = torch.where(mask, scores, -math.inf)
        weights = softmax(scores, -1)
        out = (self.dropout(weights) @ V.to(wide)).to(Q.dtype)
        result = [out]
        if return_weights:
            result.append(weights.to(Q.dtype))
        if return_scores:
            result.append(scores)
        return tuple(result) if len(result) > 1 else out


def run_scaled_dot_product_attention_module(Q, K, V, mask, dropout, training, seed):
    attention = ScaledDotProductAttention(dropout)
    attention.train(training)
    torch.manual_seed(seed)
    return attention(Q, K, V, mask, return_weights=True)
