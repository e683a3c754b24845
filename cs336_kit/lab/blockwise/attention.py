"""Attention without a queries × keys matrix: exact, quick, in memory that grows linearly with the length."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd import Function

from cs336_kit.lab.blockwise.arguments import check_arguments
from cs336_kit.lab.blockwise.forward import blockwise_forward, forward_in_one_block
from cs336_kit.lab.blockwise.masks import Mask, as_mask
from cs336_kit.lab.blockwise.plan import BlockPlan, Part
from cs336_kit.lab.blockwise.threads import share_out

# Up to so many scores for each head, and so many in all, a call without gradients has no plan.
SCORES_OF_A_HEAD, SCORES = 512 * 512, 2**22


def blockwise_attention(
    Q: Float[Tensor, "... queries d_k"],
    K: Float[Tensor, "... keys d_k"],
    V: Float[Tensor, "... keys d_v"],
    mask: Bool[Tensor, "... #queries #keys"] | Mask | None = None,
    *,
    block_size: int | None = None,
) -> Float[Tensor, "... queries d_v"]:
    r"""softmax(Q Kᵀ / √d_k) V, as `scaled_dot_product_attention` gives it, one block of scores at a time.

    Blocks in which the mask lets nothing through are skipped; where it lets everything through, it costs nothing. The
    result is differentiable once: the backward pass keeps the output and one number for each query, and computes the
    blocks again. What a skipped block holds is never looked at, so NaN in hidden keys may not spread as it does there.

    Args:
        Q: queries.
        K: keys.
        V: values, one for each key. The batch-like dimensions of `Q`, `K`, `V` and `mask` broadcast against each
            other; keys and values that serve many query heads are not copied for them.
        mask: True where a query may attend to a key, as a boolean tensor or as a mask object (`masks.py`), which
            needs no queries × keys matrix either; None lets every query attend to every key.
        block_size: queries and keys in a block; None chooses. It changes the result by rounding alone.

    Returns:
        One vector of length d_v for each query, in the dtype of `Q`. A query that may attend to nothing gets
        zeros, and so does every query when there are no keys.

    Raises:
        TypeError: the mask is not boolean, or the dtypes of `Q`, `K` and `V` differ.
        ValueError: the shapes do not fit, the tensors are on different devices, or `block_size` is not positive.
        RuntimeError: in the backward pass, when a second derivative is asked for.

    Source:
        Milakov and Gimelshein, Online normalizer calculation for softmax (2018); Dao et al., FlashAttention (2022),
        algorithm 1; Dao, FlashAttention-2 (2023), section 3.1.
    """
    mask = None if mask is None else as_mask(mask)
    batch = check_arguments(Q, K, V, mask)
    short = block_size is None and _is_short(Q, K, V, mask)
    if short and (output := forward_in_one_block(Q, K, V, mask)) is not None:
        return output
    return _Attention.apply(Q, K, V, BlockPlan(Q, K, V, mask, batch, block_size))


def _is_short(Q: Tensor, K: Tensor, V: Tensor, mask: Mask | None) -> bool:
    """Test whether `forward_in_one_block` can do it: few scores, nothing that broadcasts but the mask, no gradients."""
    return (
        (scores := Q.shape[-2] * K.shape[-2]) <= SCORES_OF_A_HEAD
        and scores * math.prod(Q.shape[:-2]) <= SCORES
        and Q.shape[:-2] == K.shape[:-2] == V.shape[:-2]
        and 0 not in (Q.numel(), K.numel(), V.numel())
        and (mask is None or len(mask.shape) == 2)
        and Q.dtype in (torch.float32, torch.float64)
        and not (torch.is_grad_enabled() and (Q.requires_grad or K.requires_grad or V.requires_grad))
    )


class _Attention(Function):
    r"""O = P V with P = softmax(Q Kᵀ / √d_k), where P is made again block by block from the logsumexp L.

    With S = Q Kᵀ / √d_k and the gradient G of O:  P = exp(S - L),  dV = Pᵀ G,  dS = P ∘ (G Vᵀ - rowsum(G ∘ O)),
    dQ = dS K / √d_k,  dK = dSᵀ Q / √d_k. L is kept in base 2, and so P = 2^(S log2(e) - L).

    Source:
        Dao et al., FlashAttention (2022), appendix B.2.
    """

    @staticmethod
    def forward(ctx: Any, Q: Tensor, K: Tensor, V: Tensor, plan: BlockPlan) -> Tensor:
        """The output; the logsumexp that comes with it is kept for the backward pass."""
        output, logsumexp = blockwise_forward(Q, K, V, plan)
        # The mask is saved with the rest, so that a change before the backward pass is an error, not a wrong gradient.
        ctx.save_for_backward(Q, K, V, output, logsumexp, *plan.mask_tensors)
        ctx.plan = plan
        return output

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """The gradients of Q, K and V."""
        if torch.is_grad_enabled():
            raise RuntimeError(
                "expected to differentiate blockwise attention once, but create_graph=True asks for a second "
                "derivative; use scaled_dot_product_attention for that"
            )
        (G,) = grad_outputs
        Q, K, V, output, logsumexp, *_ = ctx.saved_tensors
        plan: BlockPlan = ctx.plan
        accumulator = logsumexp.dtype
        dQ = plan.for_queries(Q.shape[-1], accumulator)
        dK, dV = plan.for_keys(K, accumulator).zero_(), plan.for_keys(V, accumulator).zero_()
        scale = 1 / math.sqrt(max(1, Q.shape[-1]))

        def walk(parts: Iterator[Part]) -> None:
            weights, dscores, dqueries = (Q.new_empty(0, dtype=accumulator) for _ in range(3))
            for part in parts:
                for strip in part.strips:
                    q, o, lse, g, dq = (x[:, :, strip.rows] for x in part.by_query)
                    queries, gradient = q.flatten(1, 2), g.flatten(1, 2)
                    normaliser = lse.flatten(1, 2).neg()
                    mean = (gradient * o.flatten(1, 2)).sum(-1, keepdim=True)
                    dqueries.resize_(queries.shape).zero_()
                    for number, tile in strip.tiles(Q.device):
                        keys, values, dkeys, dvalues = (blocks[number] for blocks in part.by_key)
                        shape = (*queries.shape[:2], keys.shape[1])
                        torch.bmm(queries, keys.mT, out=weights.resize_(shape))
                        torch.add(normaliser, weights, alpha=scale * math.log2(math.e), out=weights)
                        if tile is not None:
                            weights.unflatten(1, q.shape[1:3]).masked_fill_(~tile, -math.inf)
                        weights.exp2_()
                        torch.bmm(gradient, values.mT, out=dscores.resize_(shape)).sub_(mean).mul_(weights)
                        dvalues.baddbmm_(weights.mT, gradient)
                        dkeys.baddbmm_(dscores.mT, queries)
                        dqueries.baddbmm_(dscores, keys)
                    dq.copy_(dqueries.mul_(scale).unflatten(1, q.shape[1:3]))

        # All queries of a head add to the gradients of its keys and values, so a head is not divided among threads.
        q, k, v, o, g = (x.to(accumulator) for x in (Q, K, V, output, G))
        share_out(walk, plan.heads((q, o, logsumexp, g, dQ), (k, v, dK, dV)))
        dK.mul_(scale)
        dQ, dK, dV = (d.sum_to_size(x.shape).to(x.dtype) for d, x in zip((dQ, dK, dV), (Q, K, V), strict=True))
        return dQ, dK, dV, None
