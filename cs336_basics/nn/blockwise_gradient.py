"""The gradient of blockwise attention: the blocks are computed again instead of being kept."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from cs336_basics.nn.block_plan import BlockPlan
from cs336_basics.nn.functional import at_least_float32


class BlockwiseAttention(Function):
    r"""O = P V with P = softmax(Q Kᵀ / √d_k), where P is made again block by block from the logsumexp L.

    With S = Q Kᵀ / √d_k and the gradient G of O:  P = exp(S - L),  dV = Pᵀ G,  dS = P ∘ (G Vᵀ - rowsum(G ∘ O)),
    dQ = dS K / √d_k,  dK = dSᵀ Q / √d_k. L is kept in base 2, and so P = 2^(S log2(e) - L).

    Source:
        Dao et al., FlashAttention (2022), appendix B.2.
    """

    @staticmethod
    def forward(
        ctx: Any,
        Q: Tensor,
        K: Tensor,
        V: Tensor,
        plan: BlockPlan,
        attend: Callable[[Tensor, Tensor, Tensor, BlockPlan], tuple[Tensor, Tensor]],
    ) -> Tensor:
        """What `attend` computes: the output, and the logsumexp that is kept for the backward pass."""
        output, logsumexp = attend(Q, K, V, plan)
        # The mask is saved with the rest, so that a change before the backward pass is an error, not a wrong gradient.
        ctx.save_for_backward(Q, K, V, output, logsumexp, *plan.mask_tensors)
        ctx.plan = plan
        return output

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
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
        weights, dscores, dqueries = (Q.new_empty(0, dtype=accumulator) for _ in range(3))

        for blocks, (q, k, v, o, lse, g, dq, dk, dv) in plan.groups(Q, K, V, output, logsumexp, G, dQ, dK, dV):
            for rows, tiles in blocks:
                queries, outputs, gradient = (at_least_float32(x[:, :, rows]).flatten(1, 2) for x in (q, o, g))
                normaliser = lse[:, :, rows].flatten(1, 2)
                mean = (gradient * outputs).sum(-1, keepdim=True)
                dqueries.resize_(queries.shape).zero_()
                for span, tile in tiles:
                    keys, values = at_least_float32(k[:, 0, span]), at_least_float32(v[:, 0, span])
                    shape = (*queries.shape[:2], keys.shape[1])
                    torch.bmm(queries, keys.mT, out=weights.resize_(shape))
                    torch.add(-normaliser, weights, alpha=scale * math.log2(math.e), out=weights)
                    if tile is not None:
                        weights.unflatten(1, (q.shape[1], -1)).masked_fill_(~tile, -math.inf)
                    weights.exp2_()
                    torch.bmm(gradient, values.mT, out=dscores.resize_(shape)).sub_(mean).mul_(weights)
                    dv[:, 0, span].baddbmm_(weights.mT, gradient)
                    dk[:, 0, span].baddbmm_(dscores.mT, queries)
                    dqueries.baddbmm_(dscores, keys)
                dq[:, :, rows] = dqueries.mul_(scale).unflatten(1, (q.shape[1], -1))
        dK.mul_(scale)
        dQ, dK, dV = (d.sum_to_size(x.shape).to(x.dtype) for d, x in zip((dQ, dK, dV), (Q, K, V), strict=True))
        return dQ, dK, dV, None, None
