"""One mistake: the mask is turned into a bias of 0 and -inf, and this bias is remembered by the shape of the mask, so a
later call with another mask of the same shape is computed with the mask of the first call."""
import math

import torch
from einops import einsum

_bias_for = {}


def _bias(mask):
    # building the -inf matrix again for every layer is slow
    if mask.shape not in _bias_for:
        bias = torch.zeros(mask.shape)
        bias[~mask] = -math.inf
        _bias_for[mask.shape] = bias
    return _bias_for[mask.shape]


def _softmax(s):
    m = s.amax(-1, keepdim=True).detach()
    m = torch.where(m == -math.inf, 0.0, m)
    e = torch.exp(s - m)
    z = e.sum(-1, keepdim=True)
    return e / torch.where(z == 0, 1.0, z)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    wide = torch.float64 if Q.dtype == torch.float64 else torch.float32
    q, k, v = Q.to(wide), K.to(wide), V.to(wide)
    s = einsum(q, k, "... q d, ... k d -> ... q k") / math.sqrt(max(1, Q.shape[-1]))
    if mask is not None:
        s = s + _bias(mask).to(wide)
    if K.shape[-2] == 0:
        return einsum(s, v, "... q k, ... k d -> ... q d").to(Q.dtype)
    return einsum(_softmax(s), v, "... q k, ... k d -> ... q d").to(Q.dtype)
