"""Programs put together from parts, each of which can be exchanged: every default is right.

`right_styles.py` exchanges parts for others that are right, `misconceptions/` one for a wrong one. Attention computes
in the dtype of its inputs, and gives zeros for a query that may attend to nothing.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from einops import rearrange
from torch import Tensor
from torch.nn import functional as F

Adapter = Callable[..., Any]
Part = Callable[..., Any]

CHOSEN_BLOCK_SIZE = 64  # where none is given: larger than any sequence of the cases


def widened(x: Tensor) -> Tensor:
    """Half precision is computed in float32."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def softmax(x: Tensor, dim: int) -> Tensor:
    wide = widened(x)
    exponentials = torch.exp(wide - wide.max(dim, keepdim=True).values)
    return (exponentials / exponentials.sum(dim, keepdim=True)).to(x.dtype)


def linear(x: Tensor, W: Tensor) -> Tensor:
    return F.linear(x, W)


def angles_of(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """In float32 for float32, as most write it: at position 1000 that alone costs five digits."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    frequencies = theta ** (-torch.arange(0, x.shape[-1], 2, dtype=dtype) / x.shape[-1])
    return positions.unsqueeze(-1).to(dtype) * frequencies


def even_and_odd(x: Tensor) -> tuple[Tensor, Tensor]:
    """The first and the second component of each pair."""
    return x[..., 0::2], x[..., 1::2]


def turned(first: Tensor, second: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    return first * cos - second * sin, first * sin + second * cos


def interleaved(first: Tensor, second: Tensor) -> Tensor:
    return torch.stack((first, second), -1).flatten(-2)


def rotate(
    x: Tensor,
    positions: Tensor,
    theta: float,
    *,
    angles: Part = angles_of,
    pairs: Part = even_and_odd,
    turned: Part = turned,
    join: Part = interleaved,
) -> Tensor:
    by = angles(x, positions, theta)
    return join(*turned(*pairs(x), by.cos(), by.sin())).to(x.dtype)


def drop(weights: Tensor, p: float) -> Tensor:
    return torch.where(torch.rand(weights.shape) < p, 0.0, weights / (1 - p))


# Attention


def scale(Q: Tensor, K: Tensor) -> Tensor:
    """The scores of attention."""
    return Q @ K.mT / math.sqrt(Q.shape[-1])


def hide(scores: Tensor, mask: Tensor) -> Tensor:
    """The scores with what the mask forbids left out."""
    return scores.masked_fill(~mask, -math.inf)


def attention(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    mask: Tensor | None,
    *,
    score: Part = scale,
    hide: Part = hide,
    softmax: Part = softmax,
    average: Part = torch.matmul,
) -> Tensor:
    scores = score(Q, K)
    if mask is None:
        return average(softmax(scores, -1), V)
    hidden = hide(scores, mask)
    nothing = (hidden == -math.inf).all(-1, keepdim=True)
    return average(softmax(hidden, -1).masked_fill(nothing, 0.0), V)


def weigh(Q: Tensor, K: Tensor, mask: Tensor | None, attention: Part = attention) -> Tensor:
    """The weights of attention: what it makes of values that are the identity."""
    return attention(Q, K, torch.eye(K.shape[-2], dtype=K.dtype), mask)


def dropping(drop: Part, attention: Part = attention) -> Part:
    """Attention that drops weights with probability p: its output, and the weights that are left."""

    def attend(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, p: float) -> tuple[Tensor, Tensor]:
        weights = weigh(Q, K, mask, attention)
        if p:
            weights = drop(weights, p)
        return weights @ V, weights

    return attend


def module(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    mask: Tensor | None,
    dropout: float,
    training: bool,
    seed: int,
    *,
    attend: Part,
    always: bool = False,
) -> tuple[Tensor, Tensor]:
    """Output and weights of `attend`, which drops nothing in evaluation unless it does so `always`."""
    torch.manual_seed(seed)
    return attend(Q, K, V, mask, dropout if training or always else 0.0)


# Multi-head attention


def split(x: Tensor, num_heads: int) -> Tensor:
    return rearrange(x, "... sequence (head d) -> ... head sequence d", head=num_heads)


def merge(x: Tensor) -> Tensor:
    return rearrange(x, "... head sequence d -> ... sequence (head d)")


def causal(queries: int, keys: int) -> Tensor:
    return torch.ones(queries, keys, dtype=torch.bool).tril()


def count_positions(given: Tensor | None, length: int) -> Tensor:
    """Positions that fit (..., head, sequence)."""
    return torch.arange(length) if given is None else given.unsqueeze(-2)


def turn(Q: Tensor, K: Tensor, V: Tensor, rotate: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    return rotate(Q), rotate(K), V


def multihead(
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
    token_positions: Tensor | None = None,
    theta: float | None = None,
    *,
    weights: Part = lambda Q, K, V, num_heads: (Q, K, V),
    linear: Part = linear,
    split: Part = split,
    positions: Part = count_positions,
    rotate: Part = rotate,
    turn: Part = turn,
    mask: Part = lambda length: causal(length, length),
    attention: Part = attention,
    merge: Part = merge,
    output: Part | None = None,
    **sizes: int,
) -> Tensor:
    """Causal self-attention, with RoPE where theta is given; the parts are in the order in which they are used."""
    projections = weights(q_proj_weight, k_proj_weight, v_proj_weight, num_heads)
    Q, K, V = (split(linear(in_features, W), num_heads) for W in projections)
    length = in_features.shape[-2]
    if theta is not None:
        at = positions(token_positions, length)
        Q, K, V = turn(Q, K, V, lambda x: rotate(x, at, theta))
    heads = attention(Q, K, V, mask(length))
    return (output or linear)(merge(heads), o_proj_weight)


def for_heads(mask: Tensor, query: Tensor) -> Tensor:
    """A padding mask, or a mask for all heads, as one that broadcasts to (..., heads, queries, keys)."""
    if mask.ndim < query.ndim:
        mask = mask.unsqueeze(-2)
    return mask.unsqueeze(-3) if mask.ndim == query.ndim else mask


def multihead_of_two(
    attention: Part,
    linear: Part,
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
    for_heads: Part = for_heads,
    **sizes: int,
) -> Tensor:
    pairs = ((query, q_proj_weight), (key, k_proj_weight), (value, v_proj_weight))
    Q, K, V = (split(linear(x, W), num_heads) for x, W in pairs)
    heads = attention(Q, K, V, None if mask is None else for_heads(mask, query))
    return linear(merge(heads), o_proj_weight)


# Blockwise attention


def cut(length: int, size: int) -> list[slice]:
    """The blocks of a sequence; the last may be shorter."""
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]


def tile(mask: Tensor, rows: slice, columns: slice, queries: int, keys: int) -> Tensor:
    return mask.expand(*mask.shape[:-2], queries, keys)[..., rows, columns]


# What the online softmax carries from block to block: the largest score so far, the sum of the exponentials and the
# sum of the values weighted by them, one row for each query.
State = tuple[Tensor, Tensor, Tensor]


def start(Q: Tensor, V: Tensor) -> State:
    total = Q.new_zeros(*Q.shape[:-1], 1)
    return torch.full_like(total, -math.inf), total, Q.new_zeros(*Q.shape[:-1], V.shape[-1])


def running_maximum(before: Tensor, scores: Tensor) -> Tensor:
    return torch.maximum(before, scores.amax(-1, keepdim=True))


def finite(maximum: Tensor) -> Tensor:
    """-inf, where nothing was visible so far, becomes 0: -inf - -inf would be NaN."""
    return maximum.masked_fill(maximum == -math.inf, 0.0)


def shrink(before: Tensor, now: Tensor) -> Tensor:
    return torch.exp(before - finite(now))


def absorb(
    state: State,
    scores: Tensor,
    V: Tensor,
    *,
    maximum: Part = running_maximum,
    weigh: Part = lambda scores, now: torch.exp(scores - finite(now)),
    shrink_total: Part = shrink,
    shrink_sum: Part = shrink,
) -> State:
    """Compute what is carried after one more block."""
    before, total, weighted = state
    now = maximum(before, scores)
    weights = weigh(scores, now)
    total = total * shrink_total(before, now) + weights.sum(-1, keepdim=True)
    return now, total, weighted * shrink_sum(before, now) + weights @ V


def divide(state: State) -> Tensor:
    """A query that saw nothing gets zeros."""
    _, total, weighted = state
    return weighted / total.masked_fill(total == 0, 1.0)


def join(blocks: list[Tensor], Q: Tensor) -> Tensor:
    return torch.cat(blocks, -2).to(Q.dtype)


def blockwise(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    mask: Tensor | None = None,
    block_size: int | None = None,
    *,
    row_blocks: Part = cut,
    start: Part = start,
    key_blocks: Part = cut,
    walked: Part = lambda rows, columns: True,
    score: Part = scale,
    tile: Part = tile,
    hide: Part = hide,
    absorb: Part = absorb,
    divide: Part = divide,
    join: Part = join,
) -> Tensor:
    """The online softmax over tiles of queries and keys; the parts are in the order in which they are used."""
    queries, keys = Q.shape[-2], K.shape[-2]
    answers = []
    for rows in row_blocks(queries, min(block_size or CHOSEN_BLOCK_SIZE, queries)):
        q = widened(Q[..., rows, :])
        state = start(q, V)
        for columns in key_blocks(keys, min(block_size or CHOSEN_BLOCK_SIZE, keys)):
            if walked(rows, columns):
                scores = score(q, widened(K[..., columns, :]))
                if mask is not None:
                    scores = hide(scores, tile(mask, rows, columns, queries, keys))
                state = absorb(state, scores, widened(V[..., columns, :]))
        answers.append(divide(state))
    return join(answers, Q)


# A submission


def adapters(
    *,
    softmax: Part = softmax,
    attention: Part = attention,
    linear: Part = linear,
    rotate: Part = rotate,
    blockwise: Part = blockwise,
    drop: Part = drop,
) -> dict[str, Adapter]:
    """Every `run_*` function of a submission that has these parts."""

    self_attention = partial(multihead, linear=linear, rotate=rotate, attention=attention)
    return {
        "run_softmax": lambda in_features, dim: softmax(in_features, dim),
        "run_scaled_dot_product_attention": lambda Q, K, V, mask=None: attention(Q, K, V, mask),
        "run_linear": lambda d_in, d_out, weights, in_features: linear(in_features, weights),
        "run_rope": lambda d_k, theta, max_seq_len, in_query_or_key, token_positions: rotate(
            in_query_or_key, token_positions, theta
        ),
        "run_multihead_self_attention": self_attention,
        "run_multihead_self_attention_with_rope": self_attention,
        "run_scaled_dot_product_attention_module": partial(module, attend=dropping(drop, attention)),
        "run_multihead_attention": partial(multihead_of_two, attention, linear),
        "run_blockwise_attention": lambda Q, K, V, mask=None, block_size=None: blockwise(Q, K, V, mask, block_size),
    }
