"""Attention without a queries × keys matrix: exact, in memory that grows linearly with the length."""

import math
from itertools import product
from typing import Any

import numpy as np
import torch
from einops import einsum
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd import Function

from cs336_basics.given.checks import check_attention_arguments
from cs336_basics.nn.functional import at_least_float32, attention_scores


def blockwise_attention(
    Q: Float[Tensor, "... queries d_k"],
    K: Float[Tensor, "... keys d_k"],
    V: Float[Tensor, "... keys d_v"],
    mask: Bool[Tensor, "... #queries #keys"] | None = None,
    *,
    block_size: int | None = None,
) -> Float[Tensor, "... queries d_v"]:
    r"""softmax(Q Kᵀ / √d_k) V, as `scaled_dot_product_attention` gives it, one block of scores at a time.

    The backward pass computes the blocks again, so that gradients need no queries × keys matrix either.

    Args:
        Q: queries.
        K: keys.
        V: values, one for each key. The batch-like dimensions of `Q`, `K`, `V` and `mask` broadcast against each
            other, so that one key/value head can serve many query heads.
        mask: True where a query may attend to a key; None lets every query attend to every key.
        block_size: number of queries and of keys in a block; None chooses. It changes the result by rounding alone.

    Returns:
        One vector of length d_v for each query, in the dtype of `Q`. A query that may attend to nothing gets
        zeros, and so does every query when there are no keys.

    Raises:
        TypeError: the mask is not boolean, or the dtypes of `Q`, `K` and `V` differ.
        ValueError: the shapes do not fit, the tensors are on different devices, or `block_size` is not positive.
        RuntimeError: in the backward pass, if a second derivative is asked for.

    Source:
        Milakov and Gimelshein, Online normalizer calculation for softmax (2018); Dao et al., FlashAttention (2022),
        algorithm 1 and appendix B.
    """
    # BEGIN SOLUTION
    check_attention_arguments(Q, K, V, mask)
    block_size = BLOCK_SIZE if block_size is None else block_size
    if block_size < 1:
        raise ValueError(f"expected a block_size of 1 or more, or None, got {block_size}")
    if mask is None:
        mask = torch.ones(1, 1, dtype=torch.bool, device=Q.device)
    # torch.broadcast_shapes would import sympy, which takes half a second.
    batch = np.broadcast_shapes(*(x.shape[:-2] for x in (Q, K, V, mask)))
    # `expand` repeats without a copy, and autograd adds up the gradients of what it repeats.
    q, k, v = (at_least_float32(x).expand(*batch, *x.shape[-2:]) for x in (Q, K, V))
    mask = mask.expand(*batch, Q.shape[-2], K.shape[-2])
    return BlockwiseAttention.apply(q, k, v, mask, block_size).to(Q.dtype)
    # END SOLUTION


# BEGIN SOLUTION
BLOCK_SIZE = 256  # the scores of a few heads then fit into a processor's cache


class BlockwiseAttention(Function):
    """Both passes, in float32 or float64, for batch-like dimensions that no longer need to broadcast."""

    @staticmethod
    def forward(ctx: Any, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor, block_size: int) -> Tensor:
        """The online softmax: for each query, three quantities are carried from one block of keys to the next."""
        output, logsumexp = Q.new_empty(*Q.shape[:-1], V.shape[-1]), Q.new_empty(*Q.shape[:-1], 1)
        for rows in _blocks(Q, block_size):
            # Of the keys so far: the largest score m, Σ exp(s - m), and Σ exp(s - m) v. The first m is finite, since
            # where the mask hides a whole block, -inf would give -inf - -inf, which is NaN.
            maximum = torch.full_like(logsumexp[..., rows, :], torch.finfo(Q.dtype).min)
            total, weighted = torch.zeros_like(maximum), torch.zeros_like(output[..., rows, :])
            for columns in _blocks(K, block_size):
                k, v = K[..., columns, :], V[..., columns, :]
                scores = attention_scores(Q[..., rows, :], k, mask[..., rows, columns])
                previous, maximum = maximum, torch.maximum(maximum, scores.amax(dim=-1, keepdim=True))
                shrink, weights = torch.exp(previous - maximum), torch.exp(scores - maximum)
                total = shrink * total + weights.sum(dim=-1, keepdim=True)
                weighted = shrink * weighted + einsum(weights, v, "... queries keys, ... keys d_v -> ... queries d_v")
            total = total.clamp(min=1.0)  # the largest score adds 1, so only a query that sees nothing has less
            output[..., rows, :] = weighted / total
            logsumexp[..., rows, :] = maximum + torch.log(total)
        ctx.save_for_backward(Q, K, V, mask, output, logsumexp)
        ctx.block_size = block_size
        return output

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        r"""The gradients of Q, K and V from that of O = P V, where P = softmax(S) and S = Q Kᵀ / √d_k.

        dV = Pᵀ dO,  dP = dO Vᵀ,  dS = P ∘ (dP - D),  dQ = dS K / √d_k,  dK = dSᵀ Q / √d_k.  Softmax alone couples the
        keys, by D = rowsum(P ∘ dP) = Σ_j P_j (dO · v_j) = dO · O: the output knows it before the first block. And
        P = exp(S - logsumexp) needs neither maximum nor sum, so that each block adds its share by itself.
        """
        if torch.is_grad_enabled():  # create_graph=True; what went into the logsumexp is not known to autograd
            raise RuntimeError("expected one derivative; for a second one use scaled_dot_product_attention")
        (dO,) = grad_outputs
        Q, K, V, mask, output, logsumexp = ctx.saved_tensors
        dQ, dK, dV = (torch.zeros_like(x) for x in (Q, K, V))
        D = (dO * output).sum(dim=-1, keepdim=True)
        for rows, columns in product(_blocks(Q, ctx.block_size), _blocks(K, ctx.block_size)):
            q, k, v, do = Q[..., rows, :], K[..., columns, :], V[..., columns, :], dO[..., rows, :]
            P = torch.exp(attention_scores(q, k, mask[..., rows, columns]) - logsumexp[..., rows, :])
            dP = einsum(do, v, "... queries d_v, ... keys d_v -> ... queries keys")
            dS = P * (dP - D[..., rows, :]) / math.sqrt(Q.shape[-1])
            dQ[..., rows, :] += einsum(dS, k, "... queries keys, ... keys d_k -> ... queries d_k")
            dK[..., columns, :] += einsum(dS, q, "... queries keys, ... queries d_k -> ... keys d_k")
            dV[..., columns, :] += einsum(P, do, "... queries keys, ... queries d_v -> ... keys d_v")
        return dQ, dK, dV, None, None


def _blocks(x: Tensor, block_size: int) -> list[slice]:
    """Cut the queries or keys `x` into slices; the last one may be shorter."""
    return [slice(start, start + block_size) for start in range(0, x.shape[-2], block_size)]


# END SOLUTION
