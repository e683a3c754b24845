"""Right implementations of every adapter in other styles, computing in the dtype of their inputs, float32 for half.

The simplest are `parts.py` with other parts that are right. No bound is derived from any: they are what
`error_bounds.py` is tried on. The programs in `right_programs/` were written from the handout alone, and are kept as
they came.
"""

import math
import runpy
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
from einops import einsum, rearrange, reduce
from torch import Tensor
from torch.nn import functional as F

from cs336_staff.authoring import parts, references
from cs336_staff.authoring.parts import (
    CHOSEN_BLOCK_SIZE,
    Adapter,
    Part,
    adapters,
    angles_of,
    cut,
    tile,
    widened,
)

Attention = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
Blockwise = Callable[[Tensor, Tensor, Tensor, Tensor | None, int | None], Tensor]

PROGRAMS = Path(__file__).parent / "right_programs"


# softmax(x, dim)


def softmax_einops(x: Tensor, dim: int) -> Tensor:
    last = widened(x).movedim(dim, -1)
    exponentials = torch.exp(last - reduce(last, "... n -> ... 1", "max"))
    return (exponentials / reduce(exponentials, "... n -> ... 1", "sum")).movedim(-1, dim).to(x.dtype)


def softmax_of_torch(x: Tensor, dim: int) -> Tensor:
    return torch.softmax(widened(x), dim).to(x.dtype)


def softmax_logsumexp(x: Tensor, dim: int) -> Tensor:
    wide = widened(x)
    return torch.exp(wide - torch.logsumexp(wide, dim, keepdim=True)).to(x.dtype)


def softmax_in_float64(x: Tensor, dim: int) -> Tensor:
    return torch.softmax(x.double(), dim).to(x.dtype)


# attention(Q, K, V, mask)


def attention_of(**others: Part) -> Attention:
    """Attention with other parts that are right."""

    def attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
        return parts.attention(widened(Q), widened(K), widened(V), mask, **others).to(Q.dtype)

    return attention


def scaled_queries(Q: Tensor, K: Tensor) -> Tensor:
    return Q / math.sqrt(Q.shape[-1]) @ K.mT


attention_einsum = attention_of(
    score=lambda Q, K: torch.einsum("...qd,...kd->...qk", Q, K) / math.sqrt(Q.shape[-1]),
    average=lambda weights, V: torch.einsum("...qk,...kv->...qv", weights, V),
)
attention_einops = attention_of(
    score=lambda Q, K: einsum(Q, K, "... q d, ... k d -> ... q k") * Q.shape[-1] ** -0.5,
    hide=lambda scores, mask: torch.where(mask, scores, -math.inf),
    softmax=softmax_einops,
    average=lambda weights, V: einsum(weights, V, "... q k, ... k v -> ... q v"),
)
attention_scaled_queries = attention_of(score=scaled_queries, softmax=softmax_logsumexp)


def attention_matmul(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    scores = widened(Q) @ widened(K).mT / math.sqrt(Q.shape[-1])
    if mask is not None:
        # Not in a row that is all False: its softmax would be NaN, and so would its gradient.
        scores = scores + torch.zeros_like(mask, dtype=scores.dtype).masked_fill(~mask & mask.any(-1, True), -math.inf)
    weights = torch.softmax(scores, -1)
    return ((weights if mask is None else weights * mask.any(-1, keepdim=True)) @ widened(V)).to(Q.dtype)


def attention_in_float64(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    return references.run_scaled_dot_product_attention(Q.double(), K.double(), V.double(), mask).to(Q.dtype)


def attention_by_rows(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    """One query at a time, over the keys that it may attend to and no others."""
    batch = torch.broadcast_shapes(*(x.shape[:-2] for x in (Q, K, V, mask) if x is not None))
    allowed = torch.ones(1, 1, dtype=torch.bool) if mask is None else mask
    allowed = allowed.expand(*batch, Q.shape[-2], K.shape[-2]).reshape(-1, Q.shape[-2], K.shape[-2])
    Qs, Ks, Vs = (x.expand(*batch, *x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in (Q, K, V))
    rows = [
        softmax_of_torch(keys[may] @ query / math.sqrt(Q.shape[-1]), -1) @ values[may]
        for queries, keys, values, rows in zip(*map(widened, (Qs, Ks, Vs)), allowed, strict=True)
        for query, may in zip(queries, rows, strict=True)
    ]
    return torch.stack(rows).reshape(*batch, Q.shape[-2], V.shape[-1]).to(Q.dtype)


def attention_in_chunks(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    """Two queries at a time."""
    masks = [None] * Q.shape[-2] if mask is None else mask.expand(*mask.shape[:-2], Q.shape[-2], -1).split(2, -2)
    return torch.cat([attention_matmul(q, K, V, m) for q, m in zip(Q.split(2, -2), masks, strict=False)], -2)


def attention_weights_times_mask(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    """Exponentials over the largest allowed score, multiplied by the mask: no infinity anywhere."""
    scores = widened(Q) @ widened(K).mT / math.sqrt(Q.shape[-1])
    may = torch.ones_like(scores) if mask is None else mask.expand_as(scores).to(scores.dtype)
    largest = scores.masked_fill(may == 0, torch.finfo(scores.dtype).min).amax(-1, keepdim=True)
    exponentials = torch.exp((scores - largest).clamp(max=0)) * may
    total = exponentials.sum(-1, keepdim=True)
    return (exponentials / total.masked_fill(total == 0, 1) @ widened(V)).to(Q.dtype)


def attention_of_torch(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    """PyTorch's own, fused."""
    dtype = Q.dtype
    batch = torch.broadcast_shapes(*(x.shape[:-2] for x in (Q, K, V, mask) if x is not None))
    Q, K, V = (widened(x).expand(*batch, *x.shape[-2:]) for x in (Q, K, V))
    return _without_nan(F.scaled_dot_product_attention(Q, K, V, mask)).to(dtype)


def attention_values_first(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    """Values weighted by exponentials and divided by their sum at the end."""
    scores = torch.einsum("...qd,...kd->...qk", widened(Q), widened(K)) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = torch.where(mask, scores, torch.tensor(-math.inf, dtype=scores.dtype))
    largest = scores.amax(-1, keepdim=True)
    exponentials = torch.exp(scores - largest.masked_fill(largest.isinf(), 0))
    total = exponentials.sum(-1, keepdim=True)
    return (exponentials @ widened(V) / total.masked_fill(total == 0, 1)).to(Q.dtype)


# linear(x, W)


def linear_einsum(x: Tensor, W: Tensor) -> Tensor:
    return einsum(x, W, "... d_in, d_out d_in -> ... d_out")


def linear_matmul(x: Tensor, W: Tensor) -> Tensor:
    return x @ W.T


def linear_sum_of_products(x: Tensor, W: Tensor) -> Tensor:
    return (x.unsqueeze(-2) * W).sum(-1)


def linear_in_float64(x: Tensor, W: Tensor) -> Tensor:
    return (x.double() @ W.double().T).to(x.dtype)


# rotate(x, positions, theta)


def rotate_complex(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    angles = angles_of(x, positions, theta)
    numbers = torch.view_as_complex(widened(x).unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(numbers * torch.polar(torch.ones_like(angles), angles)).flatten(-2).to(x.dtype)


def rotate_matrix(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    angles = angles_of(x, positions, theta)
    rows = torch.stack((angles.cos(), -angles.sin(), angles.sin(), angles.cos()), -1).unflatten(-1, (2, 2))
    pairs = rearrange(widened(x), "... (pair two) -> ... pair two", two=2)
    return einsum(rows, pairs, "... i j, ... j -> ... i").flatten(-2).to(x.dtype)


def rotate_with_swapped_copy(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    angles = angles_of(x, positions, theta).repeat_interleave(2, -1)
    swapped = torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2)
    return (x * angles.cos() + swapped * angles.sin()).to(x.dtype)


def rotate_in_float64(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    return references.run_rope(x.shape[-1], theta, 0, x.double(), positions).to(x.dtype)


# drop(weights, p)


def drop_bernoulli(weights: Tensor, p: float) -> Tensor:
    return weights * torch.bernoulli(torch.full_like(weights, 1 - p)) / (1 - p)


# blockwise(Q, K, V, mask, block_size)


blockwise_tiles = partial(
    parts.blockwise,
    score=scaled_queries,
    # The maximum cancels, and so does its gradient.
    absorb=partial(parts.absorb, maximum=lambda before, scores: parts.running_maximum(before, scores.detach())),
)


def blockwise_two_passes(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, block_size: int | None) -> Tensor:
    """First the largest score of each query over all blocks of keys, then the sums: nothing is rescaled."""

    def scores(columns: slice) -> Tensor:
        products = einsum(widened(Q), widened(K[..., columns, :]), "... q d, ... k d -> ... q k")
        may = True if mask is None else _tile(mask, slice(None), columns, Q, K)
        return torch.where(torch.as_tensor(may), products * Q.shape[-1] ** -0.5, -math.inf)

    blocks = _blocks(K, block_size)
    largest = torch.stack([scores(columns).detach().amax(-1) for columns in blocks]).amax(0).unsqueeze(-1)
    largest = largest.masked_fill(largest == -math.inf, 0.0)
    total, weighted = torch.zeros(()), torch.zeros(())
    for columns in blocks:
        weights = torch.exp(scores(columns) - largest)
        total = total + weights.sum(-1, keepdim=True)
        weighted = weighted + einsum(weights, widened(V[..., columns, :]), "... q k, ... k v -> ... q v")
    return (weighted / total.masked_fill(total == 0, 1)).to(Q.dtype)


def in_query_chunks(attention: Attention) -> Blockwise:
    """Whole rows of scores, for a few queries at a time."""

    def blockwise(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, block_size: int | None) -> Tensor:
        blocks = _blocks(Q, block_size)
        tiles = [None if mask is None else _tile(mask, rows, slice(None), Q, K) for rows in blocks]
        chunks = [attention(Q[..., rows, :], K, V, tile) for rows, tile in zip(blocks, tiles, strict=True)]
        return torch.cat(chunks, -2)

    return blockwise


def blockwise_merged(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, block_size: int | None) -> Tensor:
    """Attention to each block of keys by itself; what they give is merged by their logsumexps. No infinity anywhere."""
    queries = widened(Q) / math.sqrt(Q.shape[-1])
    lowest = torch.finfo(queries.dtype).min / 4
    answer, logsumexp = torch.zeros(()), torch.full((1,), lowest, dtype=queries.dtype)
    for columns in _blocks(K, block_size):
        scores = queries @ widened(K[..., columns, :]).mT
        if mask is not None:
            scores = scores.masked_fill(~_tile(mask, slice(None), columns, Q, K), lowest)
        of_block = torch.logsumexp(scores, -1, keepdim=True)
        before, logsumexp = logsumexp, torch.logaddexp(logsumexp, of_block)
        weights = torch.exp(scores - logsumexp)
        answer = answer * torch.exp(before - logsumexp) + weights @ widened(V[..., columns, :])
    nothing = torch.tensor(False) if mask is None else ~mask.any(-1, keepdim=True)
    return answer.masked_fill(nothing, 0.0).to(Q.dtype)


def blockwise_in_float64(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, block_size: int | None) -> Tensor:
    return blockwise_tiles(Q.double(), K.double(), V.double(), mask, block_size).to(Q.dtype)


def _blocks(x: Tensor, size: int | None) -> list[slice]:
    return cut(x.shape[-2], size or CHOSEN_BLOCK_SIZE)


def _tile(mask: Tensor, rows: slice, columns: slice, Q: Tensor, K: Tensor) -> Tensor:
    return tile(mask, rows, columns, Q.shape[-2], K.shape[-2])


# name of a style -> the adapters of a submission that is written in it
RIGHT_STYLES: Mapping[str, Mapping[str, Adapter]] = {
    "einsum": adapters(attention=attention_einsum, linear=linear_einsum, blockwise=blockwise_tiles),
    "einops": adapters(
        softmax=softmax_einops,
        attention=attention_einops,
        linear=linear_sum_of_products,
        rotate=rotate_matrix,
        blockwise=blockwise_two_passes,
        drop=drop_bernoulli,
    ),
    "matmul": adapters(
        softmax=softmax_of_torch,
        attention=attention_matmul,
        linear=linear_matmul,
        rotate=rotate_complex,
        blockwise=in_query_chunks(attention_matmul),
        drop=F.dropout,
    ),
    "scaled queries": adapters(
        softmax=softmax_logsumexp,
        attention=attention_scaled_queries,
        rotate=rotate_with_swapped_copy,
        blockwise=blockwise_merged,
    ),
    "float64 inside": adapters(
        softmax=softmax_in_float64,
        attention=attention_in_float64,
        linear=linear_in_float64,
        rotate=rotate_in_float64,
        blockwise=blockwise_in_float64,
    ),
    "row by row": adapters(
        attention=attention_by_rows,
        linear=linear_matmul,
        rotate=rotate_matrix,
        blockwise=in_query_chunks(attention_by_rows),
    ),
    "in chunks": adapters(
        softmax=softmax_einops,
        attention=attention_in_chunks,
        rotate=rotate_complex,
        blockwise=in_query_chunks(attention_in_chunks),
    ),
    "weights times mask": adapters(
        softmax=softmax_logsumexp,
        attention=attention_weights_times_mask,
        linear=linear_einsum,
        blockwise=in_query_chunks(attention_weights_times_mask),
    ),
    "fused": adapters(
        softmax=softmax_of_torch,
        attention=attention_of_torch,
        rotate=rotate_with_swapped_copy,
        blockwise=in_query_chunks(attention_of_torch),
    ),
    "values first": adapters(
        softmax=softmax_in_float64,
        attention=attention_values_first,
        linear=linear_in_float64,
        rotate=rotate_in_float64,
        blockwise=in_query_chunks(attention_values_first),
    ),
    **{path.stem: runpy.run_path(str(path)) for path in sorted(PROGRAMS.glob("*.py"))},
}


def _without_nan(weights: Tensor) -> Tensor:
    """A row with nothing to attend to: softmax gives NaN, attention zeros."""
    return weights.nan_to_num(0.0)
