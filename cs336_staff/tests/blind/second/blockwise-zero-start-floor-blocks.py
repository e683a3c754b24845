"""Blockwise attention with the online softmax, two loops and autograd.

Wrong, first: the running maximum starts at 0 instead of -inf, so that for queries whose scores are all very negative every
exponential underflows, and they get zeros. Wrong, second: the number of blocks of keys is rounded down, so that the keys of the
last block are ignored if it is shorter than the others.
"""

import math

import torch


def cut(mask, rows, cols):
    """The tile of the mask; axes of size 1 stand for all."""
    if mask.shape[-2] > 1:
        mask = mask[..., rows, :]
    if mask.shape[-1] > 1:
        mask = mask[..., cols]
    return mask


def attend_block_row(q, K, V, mask, rows, block, scale):
    m = q.new_zeros(*q.shape[:-1], 1)
    l = torch.zeros_like(m)
    o = 0.0
    n_blocks = K.shape[-2] // block
    for j in range(n_blocks):
        cols = slice(j * block, (j + 1) * block)
        k, v = K[..., cols, :].to(q.dtype), V[..., cols, :].to(q.dtype)
        s = q @ k.transpose(-1, -2) * scale
        if mask is not None:
            s = torch.where(cut(mask, rows, cols), s, float("-inf"))
        m_new = torch.maximum(m, s.amax(-1, keepdim=True))
        alpha = torch.exp(m - m_new)
        p = torch.exp(s - m_new)
        l = l * alpha + p.sum(-1, keepdim=True)
        o = o * alpha + p @ v
        m = m_new
    return o / torch.where(l == 0, torch.ones_like(l), l)


def run_blockwise_attention(Q, K, V, mask=None, block_size=None):
    nq, nk = Q.shape[-2], K.shape[-2]
    wide = torch.promote_types(Q.dtype, torch.float32)
    size = 128 if block_size is None else block_size
    block = max(1, min(size, nk))
    lead = torch.broadcast_shapes(
        Q.shape[:-2], K.shape[:-2], V.shape[:-2], mask.shape[:-2] if mask is not None else ()
    )
    out = []
    for i in range(0, max(nq, 1), size):
        rows = slice(i, min(i + size, nq))
        q = Q[..., rows, :].to(wide)
        y = attend_block_row(q, K, V, mask, rows, block, 1 / math.sqrt(Q.shape[-1]))
        y = y.to(Q.dtype).expand(*lead, rows.stop - rows.start, V.shape[-1])
        out.append(y)
    return torch.cat(out, dim=-2)
