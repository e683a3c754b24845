"""The forward pass of blockwise attention: the online softmax over the blocks in which something is visible."""

import math
from collections.abc import Iterator
from contextlib import nullcontext

import torch
from jaxtyping import Float
from torch import Tensor

from cs336_kit.lab.blockwise.masks import Mask
from cs336_kit.lab.blockwise.plan import BlockPlan, Part, Strip
from cs336_kit.lab.blockwise.threads import one_thread, share_out


def blockwise_forward(
    Q: Float[Tensor, "... queries d_k"],
    K: Float[Tensor, "... keys d_k"],
    V: Float[Tensor, "... keys d_v"],
    plan: BlockPlan,
) -> tuple[Float[Tensor, "... queries d_v"], Float[Tensor, "... queries 1"]]:
    r"""Walk the visible blocks of the scores with the online softmax.

    For each query, three things are carried from block to block: the largest score so far m, the sum of 2^(c (s - m)),
    and the sum of 2^(c (s - m)) times the value. When m grows, both sums shrink by 2^(c (old m - new m)). Here s is
    q · k and c is log2(e) / √d_k, for 2^x is quicker than e^x. If no score is large, m stays 0.

    Args:
        Q, K, V: as in `blockwise_attention`.
        plan: the blocks.

    Returns:
        The output, and the logarithm to base 2 of the sum of 2^(c s) for each query, in float32 or better.
    """
    accumulator = torch.promote_types(Q.dtype, torch.float32)
    limits = torch.finfo(accumulator)
    output, logsumexp = plan.for_queries(V.shape[-1], Q.dtype), plan.for_queries(1, accumulator)
    scale = math.log2(math.e) / math.sqrt(max(1, Q.shape[-1]))
    bounded = scores_are_small(Q, K, V, scale)

    def walk(strips: Iterator[tuple[Strip, Part]]) -> None:
        # Memory that is used again is in the cache and needs no new pages. `resize_` keeps what is there.
        scores, weighted_sum = Q.new_empty(0, dtype=accumulator), Q.new_empty(0, dtype=accumulator)
        for strip, part in strips:
            q, out, lse = (x[:, :, strip.rows] for x in part.by_query)
            queries = q.flatten(1, 2)
            shape = queries.shape[:2]
            maximum = queries.new_full((*shape, 1), 0.0 if bounded else limits.min)
            total = torch.zeros_like(maximum)
            weighted_sum.resize_(*shape, V.shape[-1]).zero_()
            for number, tile in strip.tiles(Q.device):
                keys, values = (blocks[number] for blocks in part.by_key)
                scores.resize_(*shape, keys.shape[1])
                torch.baddbmm(scores, queries, keys.mT, beta=0, alpha=scale if bounded else 1, out=scores)
                if bounded:
                    weights = scores.exp2_()
                    if tile is not None:  # multiplying by bytes is four times as quick as by booleans
                        scores.unflatten(1, q.shape[1:3]).mul_(tile.view(torch.uint8))
                else:
                    if tile is not None:
                        scores.unflatten(1, q.shape[1:3]).masked_fill_(~tile, -math.inf)
                    previous, maximum = maximum, torch.maximum(maximum, scores.amax(-1, keepdim=True))
                    weights = scores.sub_(maximum).mul_(scale).exp2_()
                    shrink = torch.exp2((previous - maximum) * scale)
                    total.mul_(shrink)
                    weighted_sum.mul_(shrink)
                total.add_(weights.sum(-1, keepdim=True))
                weighted_sum.baddbmm_(weights, values)
            total.clamp_(min=limits.tiny)  # a query that sees nothing: 0 / tiny is 0
            torch.div(weighted_sum.view(out.shape), total.view(lse.shape), out=out)
            torch.add(total.log2_().view(lse.shape), maximum.view(lse.shape), alpha=scale, out=lse)

    Q, K, V = (x.to(accumulator) for x in (Q, K, V))  # half precision is computed in float32
    share_out(walk, plan.strips((Q, output, logsumexp), (K, V)))
    return output, logsumexp


def forward_in_one_block(
    Q: Float[Tensor, "*heads queries d_k"],
    K: Float[Tensor, "*heads keys d_k"],
    V: Float[Tensor, "*heads keys d_v"],
    mask: Mask | None,
) -> Float[Tensor, "*heads queries d_v"] | None:
    """Compute a short attention as it is written. A plan and sums to carry along would take as long as the rest.

    Returns:
        The output; None if a mask makes it NaN, as where a query sees nothing or a hidden key is NaN.
    """
    q, k, v = (x.reshape(-1, *x.shape[-2:]) for x in (Q, K, V))
    scale, bias = 1 / math.sqrt(Q.shape[-1]), None
    if mask is not None:
        visible = mask.tile(slice(0, Q.shape[-2]), slice(0, K.shape[-2]), Q.device)
        bias = torch.where(visible, 0.0, -math.inf)  # adding it is five times as quick as `masked_fill_`
    # With fewer heads than threads a matrix would be divided among threads, which changes the last bits.
    with one_thread() if len(q) < torch.get_num_threads() else nullcontext():
        weights = q.new_empty(len(q), Q.shape[-2], K.shape[-2])
        torch.baddbmm(weights, q, k.mT, beta=0, alpha=scale, out=weights)
        if bias is not None:
            weights.add_(bias)
        output = torch.softmax(weights, -1, out=weights).bmm(v)
    if mask is not None and not math.isfinite(output.sum()):
        return None
    return output.view(*Q.shape[:-1], V.shape[-1])


def scores_are_small(Q: Tensor, K: Tensor, V: Tensor, scale: float) -> bool:
    r"""Test whether 2^s can be summed as it is, without subtracting the maximum: that saves a pass over each tile.

    By Cauchy and Schwarz no s, a score times `scale`, exceeds ‖q‖ ‖k‖ scale. Below 32, each 2^s is between 2^-32 and
    2^32, so that the sum over 2^30 keys with values up to 2^60 stays below 2^122, which float32 still holds. NaN and
    infinities are never small.
    """
    if 0 in (Q.numel(), K.numel(), V.numel()):
        return False
    wide = torch.promote_types(Q.dtype, torch.float32)
    q, k, v = (torch.linalg.vector_norm(x, dim=-1, dtype=wide).amax() for x in (Q, K, V))
    return bool((q * k * scale < 32) & (v < 2.0**60))
