"""Attention pieced together from two tutorials.

Wrong, first: the queries are scaled by 1/sqrt(d_k) and then the scores once more, so they are divided by d_k altogether.
Wrong, second: the mask is read the wrong way round; where it is True the key is hidden (as in torch.nn.MultiheadAttention).
"""

import math

import torch


class Attention:
    def __init__(self, head_dim):
        self.head_dim = head_dim
        self.scaling = head_dim**-0.5

    def scores(self, q, k):
        q = q * self.scaling
        return torch.einsum("...qd,...kd->...qk", q, k)

    def weights(self, scores, mask):
        scores = scores / math.sqrt(self.head_dim)
        if mask is not None:
            scores = torch.where(mask, float("-inf"), scores)
        if scores.size(-1) == 0:
            return scores
        hi = scores.amax(-1, keepdim=True)
        p = torch.exp(scores - torch.where(hi.isinf(), 0.0, hi))
        norm = p.sum(-1, keepdim=True)
        return torch.where(norm > 0, p / torch.where(norm > 0, norm, 1.0), 0.0)

    def __call__(self, q, k, v, mask=None):
        dt = q.dtype
        if dt in (torch.float16, torch.bfloat16):
            q, k, v = q.float(), k.float(), v.float()
        w = self.weights(self.scores(q, k), mask)
        return torch.einsum("...qk,...kd->...qd", w, v).to(dt)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return Attention(Q.shape[-1])(Q, K, V, mask)
