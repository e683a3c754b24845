"""Right implementations of every adapter in other styles, computing in the dtype of their inputs.

How far they lie from the float64 reference is what a right answer may differ by: the tolerances come from them.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from einops import einsum, rearrange, reduce
from torch import Tensor
from torch.nn import functional as F

from cs336_staff.authoring import references

Softmax = Callable[[Tensor, int], Tensor]
Attention = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
Matmul = Callable[[Tensor, Tensor], Tensor]
Rotate = Callable[[Tensor, Tensor, float], Tensor]
Drop = Callable[[Tensor, float], Tensor]
Blockwise = Callable[[Tensor, Tensor, Tensor, Tensor | None, int | None], Tensor]

CHOSEN_BLOCK_SIZE = 64  # where none is given


# softmax(x, dim)


def softmax_by_definition(x: Tensor, dim: int) -> Tensor:
    wide = _widened(x)
    exponentials = torch.exp(wide - wide.max(dim, keepdim=True).values)
    return (exponentials / exponentials.sum(dim, keepdim=True)).to(x.dtype)


def softmax_einops(x: Tensor, dim: int) -> Tensor:
    last = _widened(x).movedim(dim, -1)
    exponentials = torch.exp(last - reduce(last, "... n -> ... 1", "max"))
    return (exponentials / reduce(exponentials, "... n -> ... 1", "sum")).movedim(-1, dim).to(x.dtype)


def softmax_of_torch(x: Tensor, dim: int) -> Tensor:
    return torch.softmax(x, dim)


def softmax_logsumexp(x: Tensor, dim: int) -> Tensor:
    wide = _widened(x)
    return torch.exp(wide - torch.logsumexp(wide, dim, keepdim=True)).to(x.dtype)


def softmax_in_float64(x: Tensor, dim: int) -> Tensor:
    return torch.softmax(x.double(), dim).to(x.dtype)


# attention(Q, K, V, mask)


def attention_einsum(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    scores = torch.einsum("...qd,...kd->...qk", Q, K) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return torch.einsum("...qk,...kv->...qv", _without_nan(softmax_by_definition(scores, -1)), V)


def attention_einops(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    scores = einsum(Q, K, "... q d, ... k d -> ... q k") * Q.shape[-1] ** -0.5
    if mask is not None:
        scores = torch.where(mask, scores, -math.inf)
    return einsum(_without_nan(softmax_einops(scores, -1)), V, "... q k, ... k v -> ... q v")


def attention_matmul(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    scores = Q @ K.mT / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores + torch.zeros_like(mask, dtype=scores.dtype).masked_fill(~mask, -math.inf)
    return _without_nan(torch.softmax(scores, -1)) @ V


def attention_scaled_queries(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    scores = (Q / math.sqrt(Q.shape[-1])) @ K.mT
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return _without_nan(softmax_logsumexp(scores, -1)) @ V


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
        for queries, keys, values, rows in zip(Qs, Ks, Vs, allowed, strict=True)
        for query, may in zip(queries, rows, strict=True)
    ]
    return torch.stack(rows).reshape(*batch, Q.shape[-2], V.shape[-1])


def attention_in_chunks(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    """Two queries at a time."""
    masks = [None] * Q.shape[-2] if mask is None else mask.expand(*mask.shape[:-2], Q.shape[-2], -1).split(2, -2)
    return torch.cat([attention_matmul(q, K, V, m) for q, m in zip(Q.split(2, -2), masks, strict=False)], -2)


def attention_weights_times_mask(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    """Exponentials over the largest allowed score, multiplied by the mask: no infinity anywhere."""
    scores = _widened(Q @ K.mT / math.sqrt(Q.shape[-1]))
    may = torch.ones_like(scores) if mask is None else mask.expand_as(scores).to(scores.dtype)
    largest = scores.masked_fill(may == 0, torch.finfo(scores.dtype).min).amax(-1, keepdim=True)
    exponentials = torch.exp((scores - largest).clamp(max=0)) * may
    total = exponentials.sum(-1, keepdim=True)
    return (exponentials / total.masked_fill(total == 0, 1)).to(Q.dtype) @ V


def attention_of_torch(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    """PyTorch's own, fused."""
    batch = torch.broadcast_shapes(*(x.shape[:-2] for x in (Q, K, V, mask) if x is not None))
    Q, K, V = (x.expand(*batch, *x.shape[-2:]) for x in (Q, K, V))
    return _without_nan(F.scaled_dot_product_attention(Q, K, V, mask))


def attention_values_first(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    """Values weighted by exponentials and divided by their sum at the end."""
    scores = _widened(torch.einsum("...qd,...kd->...qk", Q, K)) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = torch.where(mask, scores, torch.tensor(-math.inf, dtype=scores.dtype))
    largest = scores.amax(-1, keepdim=True)
    exponentials = torch.exp(scores - largest.masked_fill(largest.isinf(), 0))
    total = exponentials.sum(-1, keepdim=True)
    return (exponentials @ _widened(V) / total.masked_fill(total == 0, 1)).to(Q.dtype)


# linear(x, W)


def linear_einsum(x: Tensor, W: Tensor) -> Tensor:
    return einsum(x, W, "... d_in, d_out d_in -> ... d_out")


def linear_matmul(x: Tensor, W: Tensor) -> Tensor:
    return x @ W.T


def linear_of_torch(x: Tensor, W: Tensor) -> Tensor:
    return F.linear(x, W)


def linear_sum_of_products(x: Tensor, W: Tensor) -> Tensor:
    return (x.unsqueeze(-2) * W).sum(-1)


def linear_in_float64(x: Tensor, W: Tensor) -> Tensor:
    return (x.double() @ W.double().T).to(x.dtype)


# rotate(x, positions, theta)


def rotate_pairs(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    angles = _angles(x, positions, theta)
    even, odd = x[..., 0::2], x[..., 1::2]
    rotated = (even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos())
    return torch.stack(rotated, -1).flatten(-2).to(x.dtype)


def rotate_complex(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    angles = _angles(x, positions, theta)
    numbers = torch.view_as_complex(_widened(x).unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(numbers * torch.polar(torch.ones_like(angles), angles)).flatten(-2).to(x.dtype)


def rotate_matrix(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    angles = _angles(x, positions, theta)
    rows = torch.stack((angles.cos(), -angles.sin(), angles.sin(), angles.cos()), -1).unflatten(-1, (2, 2))
    pairs = rearrange(_widened(x), "... (pair two) -> ... pair two", two=2)
    return einsum(rows, pairs, "... i j, ... j -> ... i").flatten(-2).to(x.dtype)


def rotate_with_swapped_copy(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    angles = _angles(x, positions, theta).repeat_interleave(2, -1)
    swapped = torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2)
    return (x * angles.cos() + swapped * angles.sin()).to(x.dtype)


def rotate_in_float64(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    return references.run_rope(x.shape[-1], theta, 0, x.double(), positions).to(x.dtype)


# drop(weights, p)


def drop_of_torch(weights: Tensor, p: float) -> Tensor:
    return F.dropout(weights, p)


def drop_where(weights: Tensor, p: float) -> Tensor:
    return torch.where(torch.rand(weights.shape) < p, 0.0, weights / (1 - p))


def drop_bernoulli(weights: Tensor, p: float) -> Tensor:
    return weights * torch.bernoulli(torch.full_like(weights, 1 - p)) / (1 - p)


def _module(
    attention: Attention,
    drop: Drop,
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    mask: Tensor | None,
    dropout: float,
    training: bool,
    seed: int,
) -> tuple[Tensor, Tensor]:
    weights = attention(Q, K, torch.eye(K.shape[-2], dtype=K.dtype), mask)
    if training and dropout:
        torch.manual_seed(seed)
        weights = drop(weights, dropout)
    return weights @ V, weights


def for_heads(mask: Tensor, query: Tensor) -> Tensor:
    """A padding mask, or a mask for all heads, as one that broadcasts to (..., heads, queries, keys)."""
    if mask.ndim < query.ndim:
        mask = mask.unsqueeze(-2)
    return mask.unsqueeze(-3) if mask.ndim == query.ndim else mask


def multihead_of_two(
    attention: Attention,
    linear: Matmul,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    for_heads: Callable[[Tensor, Tensor], Tensor | None] = for_heads,
    **sizes: int,
) -> Tensor:
    pairs = ((query, q_proj_weight), (key, k_proj_weight), (value, v_proj_weight))
    Q, K, V = (rearrange(linear(x, W), "... t (h d) -> ... h t d", h=num_heads) for x, W in pairs)
    heads = attention(Q, K, V, None if mask is None else for_heads(mask, query))
    return linear(rearrange(heads, "... h t d -> ... t (h d)"), o_proj_weight)


# blockwise(Q, K, V, mask, block_size)


def blockwise_tiles(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, block_size: int | None) -> Tensor:
    """The online softmax over tiles of queries and keys."""
    answers = []
    for rows in _blocks(Q, block_size):
        queries = Q[..., rows, :] / math.sqrt(Q.shape[-1])
        maximum, total, weighted = torch.full_like(queries[..., :1], -math.inf), torch.zeros(()), torch.zeros(())
        for columns in _blocks(K, block_size):
            scores = queries @ K[..., columns, :].mT
            if mask is not None:
                scores = scores.masked_fill(~_tile(mask, rows, columns, Q, K), -math.inf)
            scores = _widened(scores)
            previous, maximum = maximum, torch.maximum(maximum, scores.detach().amax(-1, keepdim=True))
            reference = maximum.masked_fill(maximum == -math.inf, 0.0)
            weights, shrink = torch.exp(scores - reference), torch.exp(previous - reference)
            total = total * shrink + weights.sum(-1, keepdim=True)
            weighted = weighted * shrink + weights @ _widened(V[..., columns, :])
        answers.append(weighted / total.masked_fill(total == 0, 1))
    return torch.cat(answers, -2).to(Q.dtype)


def blockwise_two_passes(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, block_size: int | None) -> Tensor:
    """First the largest score of each query over all blocks of keys, then the sums: nothing is rescaled."""

    def scores(columns: slice) -> Tensor:
        products = einsum(_widened(Q), _widened(K[..., columns, :]), "... q d, ... k d -> ... q k")
        may = True if mask is None else _tile(mask, slice(None), columns, Q, K)
        return torch.where(torch.as_tensor(may), products * Q.shape[-1] ** -0.5, -math.inf)

    blocks = _blocks(K, block_size)
    largest = torch.stack([scores(columns).detach().amax(-1) for columns in blocks]).amax(0).unsqueeze(-1)
    largest = largest.masked_fill(largest == -math.inf, 0.0)
    total, weighted = torch.zeros(()), torch.zeros(())
    for columns in blocks:
        weights = torch.exp(scores(columns) - largest)
        total = total + weights.sum(-1, keepdim=True)
        weighted = weighted + einsum(weights, _widened(V[..., columns, :]), "... q k, ... k v -> ... q v")
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
    queries = _widened(Q) / math.sqrt(Q.shape[-1])
    lowest = torch.finfo(queries.dtype).min / 4
    answer, logsumexp = torch.zeros(()), torch.full((1,), lowest, dtype=queries.dtype)
    for columns in _blocks(K, block_size):
        scores = queries @ _widened(K[..., columns, :]).mT
        if mask is not None:
            scores = scores.masked_fill(~_tile(mask, slice(None), columns, Q, K), lowest)
        of_block = torch.logsumexp(scores, -1, keepdim=True)
        before, logsumexp = logsumexp, torch.logaddexp(logsumexp, of_block)
        weights = torch.exp(scores - logsumexp)
        answer = answer * torch.exp(before - logsumexp) + weights @ _widened(V[..., columns, :])
    nothing = torch.tensor(False) if mask is None else ~mask.any(-1, keepdim=True)
    return answer.masked_fill(nothing, 0.0).to(Q.dtype)


def blockwise_in_float64(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, block_size: int | None) -> Tensor:
    return blockwise_tiles(Q.double(), K.double(), V.double(), mask, block_size).to(Q.dtype)


def _blocks(x: Tensor, size: int | None) -> list[slice]:
    """The positions of `x`, cut into blocks; the last may be shorter."""
    size = size or CHOSEN_BLOCK_SIZE
    return [slice(start, start + size) for start in range(0, x.shape[-2], size)]


def _tile(mask: Tensor, rows: slice, columns: slice, Q: Tensor, K: Tensor) -> Tensor:
    return mask.expand(*mask.shape[:-2], Q.shape[-2], K.shape[-2])[..., rows, columns]


def _multihead(
    attention: Attention,
    linear: Matmul,
    rotate: Rotate,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
    token_positions: Tensor | None = None,
    theta: float | None = None,
    **sizes: int,
) -> Tensor:
    Q, K, V = (
        rearrange(linear(in_features, W), "... t (h d) -> ... h t d", h=num_heads)
        for W in (q_proj_weight, k_proj_weight, v_proj_weight)
    )
    length = in_features.shape[-2]
    if theta is not None:
        positions = torch.arange(length) if token_positions is None else token_positions.unsqueeze(-2)
        Q, K = rotate(Q, positions, theta), rotate(K, positions, theta)
    heads = attention(Q, K, V, torch.ones(length, length, dtype=torch.bool).tril())
    return linear(rearrange(heads, "... h t d -> ... t (h d)"), o_proj_weight)


def _adapters(
    softmax: Softmax,
    attention: Attention,
    linear: Matmul,
    rotate: Rotate,
    blockwise: Blockwise,
    drop: Drop = drop_where,
) -> Mapping[str, Callable[..., Any]]:
    def multihead(**arguments) -> Tensor:
        return _multihead(attention, linear, rotate, **arguments)

    return {
        "run_softmax": lambda in_features, dim: softmax(in_features, dim),
        "run_scaled_dot_product_attention": lambda Q, K, V, mask=None: attention(Q, K, V, mask),
        "run_linear": lambda d_in, d_out, weights, in_features: linear(in_features, weights),
        "run_rope": lambda d_k, theta, max_seq_len, in_query_or_key, token_positions: rotate(
            in_query_or_key, token_positions, theta
        ),
        "run_multihead_self_attention": multihead,
        "run_multihead_self_attention_with_rope": multihead,
        "run_scaled_dot_product_attention_module": partial(_module, attention, drop),
        "run_multihead_attention": partial(multihead_of_two, attention, linear),
        "run_blockwise_attention": lambda Q, K, V, mask=None, block_size=None: blockwise(Q, K, V, mask, block_size),
    }


# name of a style -> the adapters of a submission that is written in it
CORRECT: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "einsum": _adapters(softmax_by_definition, attention_einsum, linear_einsum, rotate_pairs, blockwise_tiles),
    "einops": _adapters(
        softmax_einops, attention_einops, linear_sum_of_products, rotate_matrix, blockwise_two_passes, drop_bernoulli
    ),
    "matmul": _adapters(
        softmax_of_torch,
        attention_matmul,
        linear_matmul,
        rotate_complex,
        in_query_chunks(attention_matmul),
        drop_of_torch,
    ),
    "scaled queries": _adapters(
        softmax_logsumexp, attention_scaled_queries, linear_of_torch, rotate_with_swapped_copy, blockwise_merged
    ),
    "float64 inside": _adapters(
        softmax_in_float64, attention_in_float64, linear_in_float64, rotate_in_float64, blockwise_in_float64
    ),
}

# Styles that no tolerance was taken from: what was derived must be wide enough for them too.
ALSO_CORRECT: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "row by row": _adapters(
        softmax_by_definition, attention_by_rows, linear_matmul, rotate_matrix, in_query_chunks(attention_by_rows)
    ),
    "in chunks": _adapters(
        softmax_einops, attention_in_chunks, linear_of_torch, rotate_complex, in_query_chunks(attention_in_chunks)
    ),
    "weights times mask": _adapters(
        softmax_logsumexp,
        attention_weights_times_mask,
        linear_einsum,
        rotate_pairs,
        in_query_chunks(attention_weights_times_mask),
    ),
    "fused": _adapters(
        softmax_of_torch,
        attention_of_torch,
        linear_of_torch,
        rotate_with_swapped_copy,
        in_query_chunks(attention_of_torch),
    ),
    "values first": _adapters(
        softmax_in_float64,
        attention_values_first,
        linear_in_float64,
        rotate_in_float64,
        in_query_chunks(attention_values_first),
    ),
}


def _widened(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _without_nan(weights: Tensor) -> Tensor:
    """A row with nothing to attend to: softmax gives NaN, attention zeros."""
    return weights.nan_to_num(0.0)


def _angles(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """In float32 for float32, as most write it: at position 1000 that alone costs five digits."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    frequencies = theta ** (-torch.arange(0, x.shape[-1], 2, dtype=dtype) / x.shape[-1])
    return positions.unsqueeze(-1).to(dtype) * frequencies
