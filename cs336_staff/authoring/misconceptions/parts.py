"""What a misconception is, and right parts to build a wrong submission around one wrong part.

A wrong part is wrong wherever a submission uses it: a wrong softmax makes attention wrong, and attention makes
multi-head attention wrong. Blockwise attention uses neither: it has an online softmax of its own.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from cs336_staff.authoring.right_styles import linear_of_torch, rotate_pairs, softmax_by_definition

Adapter = Callable[..., Any]
Part = Callable[..., Any]

SECTIONS = {
    "softmax": "2 Softmax",
    "scaled_dot_product_attention": "3 Attention",
    "linear": "4 Linear layer",
    "rope": "5 Rotary position embedding",
    "multihead_self_attention": "6 Multi-head self-attention",
    "attention_module": "7.1 Attention as a module",
    "multihead_attention": "7.2 Attention between two sequences",
    "blockwise_attention": "8 Blockwise attention",
}


@dataclass(frozen=True)
class Misconception:
    """A known wrong implementation.

    Args:
        id: its name in the fixtures.
        name: what went wrong, in words that a student would use.
        hint: a question that leads to the mistake.
        problem: the problem in which the mistake is made.
        adapters: the adapters that are wrong; the others of the submission are right.
        sign: one of `cs336_kit.signs.SIGNS`, for a mistake whose numbers differ from one program to the next.
    """

    id: str
    name: str
    hint: str
    problem: str
    adapters: Mapping[str, Adapter]
    sign: str = ""

    @property
    def section(self) -> str:
        """Where docs/assignment.md explains it."""
        return SECTIONS[self.problem]


def in_softmax(id: str, name: str, hint: str, softmax: Adapter, sign: str = "") -> Misconception:
    """A wrong `softmax(x, dim)`, in attention and multi-head attention too."""
    wrong = partial(attention, softmax=softmax)
    adapters = {"run_softmax": lambda in_features, dim: softmax(in_features, dim), **_with_attention(wrong)}
    return Misconception(id, name, hint, "softmax", adapters, sign)


def in_attention(id: str, name: str, hint: str, attention: Adapter, sign: str = "") -> Misconception:
    """A wrong `attention(Q, K, V, mask)`, in multi-head attention too."""
    return Misconception(id, name, hint, "scaled_dot_product_attention", _with_attention(attention), sign)


def in_linear(id: str, name: str, hint: str, linear: Adapter, sign: str = "") -> Misconception:
    """A wrong `linear(x, W)`, in the projections of multi-head attention too."""
    adapters = {
        "run_linear": lambda d_in, d_out, weights, in_features: linear(in_features, weights),
        **_multihead_adapters(linear=linear),
    }
    return Misconception(id, name, hint, "linear", adapters, sign)


def in_rope(id: str, name: str, hint: str, rotate: Adapter, sign: str = "") -> Misconception:
    """A wrong `rotate(x, positions, theta)`, in multi-head attention too."""
    adapters = {
        "run_rope": lambda d_k, theta, max_seq_len, in_query_or_key, token_positions: rotate(
            in_query_or_key, token_positions, theta
        ),
        **_multihead_adapters(rotate=rotate),
    }
    return Misconception(id, name, hint, "rope", adapters, sign)


def in_multihead(id: str, name: str, hint: str, **parts: Part) -> Misconception:
    """Multi-head attention in which one of the keyword arguments of `multihead` is wrong."""
    return Misconception(id, name, hint, "multihead_self_attention", _multihead_adapters(**parts))


def in_blockwise(id: str, name: str, hint: str, **parts: Part) -> Misconception:
    """Blockwise attention in which one of the keyword arguments of `blockwise` is wrong."""
    return in_whole_blockwise(id, name, hint, partial(blockwise, **parts))


def in_whole_blockwise(id: str, name: str, hint: str, blockwise: Adapter) -> Misconception:
    """A wrong `blockwise(Q, K, V, mask, block_size)`."""
    return Misconception(id, name, hint, "blockwise_attention", {"run_blockwise_attention": blockwise})


def _with_attention(attention: Adapter) -> dict[str, Adapter]:
    return {
        "run_scaled_dot_product_attention": lambda Q, K, V, mask=None: attention(Q, K, V, mask),
        **_multihead_adapters(attention=attention),
    }


def _multihead_adapters(**parts: Part) -> dict[str, Adapter]:
    wrong = partial(multihead, **parts)
    return {"run_multihead_self_attention": wrong, "run_multihead_self_attention_with_rope": wrong}


softmax = softmax_by_definition
linear = linear_of_torch
rotate = rotate_pairs

CHOSEN_BLOCK_SIZE = 64  # larger than any sequence of the cases


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
    score: Callable[[Tensor, Tensor], Tensor] = scale,
    hide: Callable[[Tensor, Tensor], Tensor] = hide,
    softmax: Callable[[Tensor, int], Tensor] = softmax,
) -> Tensor:
    """Attention of given parts; a row with nothing to attend to gives zeros."""
    scores = score(Q, K)
    if mask is None:
        return softmax(scores, -1) @ V
    hidden = hide(scores, mask)
    nothing = (hidden == -math.inf).all(-1, keepdim=True)
    return softmax(hidden, -1).masked_fill(nothing, 0.0) @ V


def split(x: Tensor, num_heads: int) -> Tensor:
    return rearrange(x, "... sequence (head d) -> ... head sequence d", head=num_heads)


def merge(x: Tensor) -> Tensor:
    return rearrange(x, "... head sequence d -> ... sequence (head d)")


def causal(length: int) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool).tril()


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
    linear: Part = linear,
    weights: Part = lambda Q, K, V, num_heads: (Q, K, V),
    split: Part = split,
    rotate: Part = rotate,
    positions: Part = count_positions,
    turn: Part = turn,
    mask: Part = causal,
    attention: Part = attention,
    merge: Part = merge,
    output: Part | None = None,
    **sizes: int,
) -> Tensor:
    """Causal multi-head self-attention of given parts, in the order in which they are used."""
    projections = weights(q_proj_weight, k_proj_weight, v_proj_weight, num_heads)
    Q, K, V = (split(linear(in_features, W), num_heads) for W in projections)
    length = in_features.shape[-2]
    if theta is not None:
        at = positions(token_positions, length)
        Q, K, V = turn(Q, K, V, lambda x: rotate(x, at, theta))
    heads = attention(Q, K, V, mask(length))
    return (output or linear)(merge(heads), o_proj_weight)


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
    """What is carried after one more block, of given parts."""
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
    key_blocks: Part = cut,
    walked: Part = lambda rows, columns: True,
    score: Part = scale,
    tile: Part = tile,
    hide: Part = hide,
    start: Part = start,
    absorb: Part = absorb,
    divide: Part = divide,
    join: Part = join,
) -> Tensor:
    """Blockwise attention of given parts, in the order in which they are used."""
    wide = torch.promote_types(Q.dtype, torch.float32)
    queries, keys = Q.shape[-2], K.shape[-2]
    answers = []
    for rows in row_blocks(queries, min(block_size or CHOSEN_BLOCK_SIZE, queries)):
        q = Q[..., rows, :].to(wide)
        state = start(q, V)
        for columns in key_blocks(keys, min(block_size or CHOSEN_BLOCK_SIZE, keys)):
            if walked(rows, columns):
                scores = score(q, K[..., columns, :].to(wide))
                if mask is not None:
                    scores = hide(scores, tile(mask, rows, columns, queries, keys))
                state = absorb(state, scores, V[..., columns, :].to(wide))
        answers.append(divide(state))
    return join(answers, Q)
