"""The running maximum starts at 0 instead of -inf, so it is never below 0.

For a query whose scores are all far below 0 (about -100 in float32) every exponential underflows, and it gets zeros
or an inaccurate answer.
"""

import math

import torch


def run_blockwise_attention(Q, K, V, mask=None, block_size=None):
    if block_size is None:
        block_size = 128
    dtype = Q.dtype
    wide = torch.promote_types(dtype, torch.float32)
    nq, nk = Q.shape[-2], K.shape[-2]
    shapes = [Q.shape[:-2], K.shape[:-2], V.shape[:-2]]
    if mask is not None:
        shapes.append(mask.shape[:-2])
        mask = mask.expand(*mask.shape[:-2], nq, nk)
    batch = torch.broadcast_shapes(*shapes)
    scale = 1.0 / math.sqrt(Q.shape[-1])

    outputs = []
    for i in range(0, nq, block_size):
        q = Q[..., i : i + block_size, :].to(wide) * scale
        rows = q.shape[-2]
        m = torch.zeros(*batch, rows, 1, dtype=wide, device=Q.device)
        l = torch.zeros(*batch, rows, 1, dtype=wide, device=Q.device)
        o = torch.zeros(*batch, rows, V.shape[-1], dtype=wide, device=Q.device)
        for j in range(0, nk, block_size):
            k = K[..., j : j + block_size, :].to(wide)
            v = V[..., j : j + block_size, :].to(wide)
            s = q @ k.transpose(-1, -2)
            if mask is not None:
                s = s.masked_fill(~mask[..., i : i + block_size, j : j + block_size], -math.inf)
            m_new = torch.maximum(m, s.detach().amax(dim=-1, keepdim=True))
            p = torch.exp(s - m_new)
            factor = torch.exp(m - m_new)
            l = l * factor + p.sum(dim=-1, keepdim=True)
            o = o * factor + p @ v
            m = m_new
        outputs.append((o / torch.where(l == 0, torch.ones_like(l), l)).to(dtype))
    if not outputs:
        return Q.new_zeros(*batch, 0, V.shape[-1])
    return torch.cat(outputs, dim=-2)
