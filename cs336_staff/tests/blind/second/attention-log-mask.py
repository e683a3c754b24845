"""The mask is added as log(mask + 1e-9): a hidden score becomes only about 20.7 smaller instead of -inf.

Hidden keys keep some weight, much of it when their score is large, and a query with nothing to attend to gets an
average instead of zeros.
"""

import math

import torch
from einops import einsum


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    dtype = Q.dtype
    wide = torch.promote_types(dtype, torch.float32)
    scores = einsum(Q.to(wide), K.to(wide), "... q d, ... k d -> ... q k") / math.sqrt(Q.shape[-1])
    if scores.shape[-1] == 0:
        return (scores @ V.to(wide)).to(dtype)
    if mask is not None:
        # multiply the probabilities by the mask, but in log space
        scores = scores + torch.log(mask.to(wide) + 1e-9)
    p = torch.exp(scores - scores.detach().amax(dim=-1, keepdim=True))
    p = p / p.sum(dim=-1, keepdim=True)
    return einsum(p, V.to(wide), "... q k, ... k d -> ... q d").to(dtype)
