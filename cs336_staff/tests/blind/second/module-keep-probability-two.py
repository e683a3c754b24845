"""Dropout is written as if `dropout` were the probability to keep a weight (the keep_prob of TensorFlow 1).

A share 1 - p of the weights is dropped and the others are divided by p; only for p = 0.5 it is right. A dropout of 0
drops nothing.
"""

import math

import torch
from torch import nn


class ScaledDotProductAttention(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.keep_prob = dropout

    def forward(self, Q, K, V, mask=None):
        dtype = Q.dtype
        wide = torch.promote_types(dtype, torch.float32)
        scores = Q.to(wide) @ K.to(wide).transpose(-1, -2) / math.sqrt(Q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf)
        if scores.numel() > 0:
            m = scores.detach().amax(-1, keepdim=True)
            e = torch.exp(scores - m.masked_fill(m == -math.inf, 0.0))
            total = e.sum(-1, keepdim=True)
            weights = e / total.masked_fill(total == 0, 1.0)
        else:
            weights = scores
        if self.training and self.keep_prob > 0:
            binary = torch.floor(self.keep_prob + torch.rand_like(weights))
            weights = weights / self.keep_prob * binary
        return (weights @ V.to(wide)).to(dtype), weights.to(dtype)


def run_scaled_dot_product_attention_module(Q, K, V, mask, dropout, training, seed):
    torch.manual_seed(seed)
    layer = ScaledDotProductAttention(dropout)
    layer.train(training)
    return layer(Q, K, V, mask)
