"""Attention that never holds a queries × keys matrix: exact, in memory that grows linearly with the length."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cs336_basics.nn.block_plan import BlockPlan
from cs336_basics.nn.blockwise_gradient import BlockwiseAttention
from cs336_basics.nn.functional import at_least_float32
from cs336_basics.nn.masks import Mask


def blockwise_attention(
    Q: Float[Tensor, "... queries d_k"],
    K: Float[Tensor, "... keys d_k"],
    V: Float[Tensor, "... keys d_v"],
    mask: Bool[Tensor, "... #queries #keys"] | Mask | None = None,
    *,
    block_size: int | None = None,
) -> Float[Tensor, "... queries d_v"]:
    return BlockwiseAttention.apply(Q, K, V, BlockPlan(Q, K, V, mask, block_size), attend_blocks)


def attend_blocks(Q, K, V, plan):
    # BEGIN SOLUTION
    accumulator = torch.promote_types(Q.dtype, torch.float32)
    output = plan.for_queries(V.shape[-1], Q.dtype)
    logsumexp = plan.for_queries(1, accumulator)
    scale = math.log2(math.e) / math.sqrt(max(1, Q.shape[-1]))
    bounded = logits_are_small(Q, K, V, scale)
    for blocks, (q, k, v, out, lse) in plan.groups(Q, K, V, output, logsumexp):
        heads, sharing = q.shape[:2]
        for rows, key_blocks in blocks:
            queries = (at_least_float32(q[:, :, rows]) * scale).flatten(1, 2)
            maximum = queries.new_full((*queries.shape[:2], 1), 0.0 if bounded else torch.finfo(accumulator).min)
            total = torch.zeros_like(maximum)
            weighted = queries.new_zeros(*queries.shape[:2], v.shape[-1])
            for columns, tile in key_blocks:
                scores = torch.bmm(queries, at_least_float32(k[:, 0, columns]).mT)
                per_head = scores.unflatten(1, (sharing, -1))
                if bounded:
                    scores.exp2_()
                    if tile is not None:
                        per_head.mul_(tile)
                else:
                    if tile is not None:
                        per_head.masked_fill_(~tile, -math.inf)
                    previous, maximum = maximum, torch.maximum(maximum, scores.amax(-1, keepdim=True))
                    scores.sub_(maximum).exp2_()
                    shrink = previous.sub_(maximum).exp2_()
                    total *= shrink
                    weighted *= shrink
                total += scores.sum(-1, keepdim=True)
                weighted.baddbmm_(scores, at_least_float32(v[:, 0, columns]))
            nothing = total == 0
            lse[:, :, rows] = (maximum + total.log2()).masked_fill_(nothing, math.inf).unflatten(1, (sharing, -1))
            out[:, :, rows] = (weighted / total.masked_fill_(nothing, 1)).unflatten(1, (sharing, -1))
    return output, logsumexp
    # END SOLUTION


def logits_are_small(Q, K, V, scale) -> bool:
    if 0 in (Q.numel(), K.numel(), V.numel()):
        return True
    norms = (torch.linalg.vector_norm(x, dim=-1, dtype=torch.promote_types(Q.dtype, torch.float32)).amax() for x in (Q, K))
    return bool(math.prod(norms) * scale < 40) and bool(V.abs().amax()<2**40)
