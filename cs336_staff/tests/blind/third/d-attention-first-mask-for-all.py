"""Wrong: of a mask with leading dimensions only the first matrix, mask[0][0]..., is used, for every sequence and every
head. Masks (queries, keys), or with leading dimensions of size 1, are right."""

import math

import torch
from torch import Tensor


def attend(q, k, v, mask):
    """q (queries, d_k), k (keys, d_k), v (keys, d_v), mask (queries, keys)"""
    s = q @ k.T / math.sqrt(k.shape[1])
    s = s.masked_fill(~mask, -math.inf)
    if s.shape[1] == 0:
        return s @ v
    biggest = s.amax(1, keepdim=True).detach()
    biggest[biggest == -math.inf] = 0
    e = torch.exp(s - biggest)
    total = e.sum(1, keepdim=True)
    total = total + (total == 0)
    return e / total @ v


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    dtype = Q.dtype
    if dtype in (torch.float16, torch.bfloat16):
        Q, K, V = Q.float(), K.float(), V.float()
    nq, nk, dv = Q.shape[-2], K.shape[-2], V.shape[-1]
    shapes = [Q.shape[:-2], K.shape[:-2], V.shape[:-2]]
    if mask is None:
        mask = torch.ones(nq, nk, dtype=torch.bool)
    shapes.append(mask.shape[:-2])
    batch = torch.broadcast_shapes(*shapes)
    # flatten all the batch dimensions into one, so that I can loop over it
    q = Q.expand(*batch, nq, Q.shape[-1]).reshape(math.prod(batch), nq, Q.shape[-1])
    k = K.expand(*batch, nk, K.shape[-1]).reshape(math.prod(batch), nk, K.shape[-1])
    v = V.expand(*batch, nk, dv).reshape(math.prod(batch), nk, dv)
    while mask.ndim > 2:
        mask = mask[0]
    mask = mask.expand(nq, nk)
    out = [attend(q[i], k[i], v[i], mask) for i in range(len(q))]
    return torch.stack(out).reshape(*batch, nq, dv).to(dtype)
