import torch
from torch import nn


def softmax(x, dim):
    y = x.double() if x.dtype == torch.float64 else x.float()
    y = torch.exp(y - y.max(dim, keepdim=True).values)
    return (y / y.sum(dim, keepdim=True)).to(x.dtype)


def scaled_dot_product_attention(Q, K, V, mask=None):
    t = torch.float64 if Q.dtype == torch.float64 else torch.float32
    scores = Q.to(t) @ K.to(t).mT / Q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
        scores = scores.masked_fill(~mask.any(-1, keepdim=True), 0.0)
    weights = softmax(scores, -1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return (weights @ V.to(t)).to(Q.dtype)


class Linear(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d_out, d_in) * (2 / (d_in + d_out)) ** 0.5)

    def forward(self, x):
        return x @ self.weight.T


class SelfAttention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.q, self.k, self.v, self.o = Linear(d, d), Linear(d, d), Linear(d, d), Linear(d, d)

    def forward(self, x):
        q, k, v = (p(x).unflatten(-1, (self.h, -1)).transpose(-2, -3) for p in (self.q, self.k, self.v))
        causal = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
        return self.o(scaled_dot_product_attention(q, k, v, causal).transpose(-2, -3).flatten(-2))
