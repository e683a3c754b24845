"""One mistake: when the mask hides a whole block of keys from a block of queries, the loop over the keys is left with
`break` instead of going on with `continue`, so all later blocks of keys are lost for these queries, also those that they
may attend to. (With a causal mask nothing is lost.)"""
import math

import torch
from torch import Tensor


def _cut(mask: Tensor, rows: slice, cols: slice) -> Tensor:
    if mask.shape[-2] != 1:
        mask = mask[..., rows, :]
    if mask.shape[-1] != 1:
        mask = mask[..., :, cols]
    return mask


def run_blockwise_attention(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, block_size: int | None = None
) -> Tensor:
    B = block_size or 128
    n_q, n_k = Q.shape[-2], K.shape[-2]
    wide = torch.promote_types(Q.dtype, torch.float32)
    scale = 1 / math.sqrt(max(1, Q.shape[-1]))
    lead = torch.broadcast_shapes(Q.shape[:-2], K.shape[:-2], V.shape[:-2], () if mask is None else mask.shape[:-2])

    if n_k == 0:
        return (Q @ K.mT @ V).expand(*lead, n_q, V.shape[-1])

    answers = []
    for i in range(0, n_q, B):
        q = Q[..., i : i + B, :].to(wide) * scale
        n = q.shape[-2]
        m = torch.full((*lead, n, 1), -math.inf, dtype=wide, device=Q.device)
        l = torch.zeros((*lead, n, 1), dtype=wide, device=Q.device)
        o = torch.zeros((*lead, n, V.shape[-1]), dtype=wide, device=Q.device)
        for j in range(0, n_k, B):
            tile = None
            if mask is not None:
                tile = _cut(mask, slice(i, i + B), slice(j, j + B))
            s = q @ K[..., j : j + B, :].to(wide).mT
            if tile is not None:
                s = torch.where(tile, s, -math.inf)
            new_m = torch.maximum(m, s.detach().amax(-1, keepdim=True))
            safe = torch.where(new_m == -math.inf, 0.0, new_m)
            shrink = torch.exp(m - safe)
            p = torch.exp(s - safe)
            l = l * shrink + p.sum(-1, keepdim=True)
            o = o * shrink + p @ V[..., j : j + B, :].to(wide)
            m = new_m
            if tile is not None and not tile.any():
                break  # nothing to see from here on
        answers.append((o / torch.where(l == 0, 1.0, l)).to(Q.dtype))
    if not answers:
        return torch.zeros(*lead, n_q, V.shape[-1], dtype=Q.dtype, device=Q.device)
    return torch.cat(answers, dim=-2)
