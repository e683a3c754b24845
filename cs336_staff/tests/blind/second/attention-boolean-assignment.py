"""Hidden scores are set by indexing with the mask, which needs a mask of exactly the shape of the scores.

A mask that should broadcast, (queries, keys) beside a batch or with an axis of size 1, raises an IndexError.
"""

import numpy as np
import torch


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    dtype = Q.dtype
    if dtype == torch.float16 or dtype == torch.bfloat16:
        Q = Q.to(torch.float32)
        K = K.to(torch.float32)
        V = V.to(torch.float32)
    scores = Q @ K.transpose(-2, -1) / float(np.sqrt(Q.shape[-1]))
    if mask is not None:
        scores[mask == False] = -np.inf  # noqa: E712
    if scores.shape[-1] == 0:
        return (scores @ V).to(dtype)
    biggest = scores.detach().amax(-1, keepdim=True)
    biggest[biggest == -np.inf] = 0
    weights = torch.exp(scores - biggest)
    total = weights.sum(-1, keepdim=True)
    weights = weights / torch.where(total == 0, 1.0, total).to(total.dtype)
    return (weights @ V).to(dtype)
