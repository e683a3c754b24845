"""The mask is applied after a softmax over all keys, whose weights are then divided by what is left of their sum.

The hidden scores take part in the softmax: where a hidden score is much larger than the visible ones, the visible
weights underflow and the query gets zeros, or weights that no longer sum to 1.
"""

import torch


def probabilities(scores):
    if scores.numel() == 0:
        return scores
    e = torch.exp(scores - scores.detach().max(-1, keepdim=True).values)
    return e / e.sum(-1, keepdim=True)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    kind = Q.dtype
    if kind in (torch.float16, torch.bfloat16):
        Q, K, V = Q.float(), K.float(), V.float()
    scores = torch.einsum("...qd,...kd->...qk", Q, K) * Q.shape[-1] ** -0.5
    weights = probabilities(scores)
    if mask is not None:
        weights = weights * mask.to(weights.dtype)
        # rows must sum to one again; clamp for rows which are fully masked
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-12)
    return torch.einsum("...qk,...kd->...qd", weights, V).to(kind)
