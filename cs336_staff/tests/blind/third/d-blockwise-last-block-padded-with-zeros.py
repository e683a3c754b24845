"""Wrong: the last block of keys, if it is shorter than the others, is filled up with zero keys and zero values that no mask
hides, so that each of them adds e^0 to the running sum of every query. When the block size divides the number of keys, or
is not smaller than it, the answer is right."""

import math

import torch
from torch import Tensor


def _padded(t: Tensor, length: int, dim: int, fill: float | bool) -> Tensor:
    """Blocks of one shape, so that the inner step can be compiled once."""
    missing = length - t.shape[dim]
    if missing == 0:
        return t
    shape = list(t.shape)
    shape[dim] = missing
    return torch.cat((t, t.new_full(shape, fill)), dim)


def _step(q: Tensor, k: Tensor, v: Tensor, tile: Tensor | None, m: Tensor, l: Tensor, o: Tensor):
    s = q @ k.mT
    if tile is not None:
        s = torch.where(tile, s, -math.inf)
    new = torch.maximum(m, s.detach().amax(-1, keepdim=True))
    safe = torch.where(new == -math.inf, 0.0, new)
    factor = torch.exp(m - safe)
    p = torch.exp(s - safe)
    return new, l * factor + p.sum(-1, keepdim=True), o * factor + p @ v


def run_blockwise_attention(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, block_size: int | None = None
) -> Tensor:
    wide = torch.promote_types(Q.dtype, torch.float32)
    n_queries, n_keys = Q.shape[-2], K.shape[-2]
    batch = torch.broadcast_shapes(
        Q.shape[:-2], K.shape[:-2], V.shape[:-2], *(() if mask is None else (mask.shape[:-2],))
    )
    if mask is not None:
        mask = mask.expand(*mask.shape[:-2], n_queries, n_keys)  # a view: nothing is copied
    size = 512 if block_size is None else block_size
    width = max(1, min(size, n_keys))
    answers = []
    for i in range(0, n_queries, size):
        q = Q[..., i : i + size, :].to(wide) / math.sqrt(Q.shape[-1])
        m = q.new_full((*batch, q.shape[-2], 1), -math.inf)
        l = torch.zeros_like(m)
        o = q.new_zeros((*batch, q.shape[-2], V.shape[-1]))
        for j in range(0, n_keys, width):
            k = _padded(K[..., j : j + width, :].to(wide), width, -2, 0.0)
            v = _padded(V[..., j : j + width, :].to(wide), width, -2, 0.0)
            tile = None if mask is None else _padded(mask[..., i : i + size, j : j + width], width, -1, True)
            m, l, o = _step(q, k, v, tile, m, l, o)
        answers.append((o / torch.where(l == 0, 1.0, l)).to(Q.dtype))
    return torch.cat(answers, -2) if answers else Q.new_zeros((*batch, 0, V.shape[-1]))
