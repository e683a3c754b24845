"""Blockwise attention that is wrong."""

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from cs336_staff.authoring.room import Part, wrong
from cs336_staff.problems.blockwise_attention.programs import (
    CHOSEN_BLOCK_SIZE,
    State,
    absorb,
    blockwise,
    cut,
    divide,
    finite,
    hide,
    start,
    tile,
)
from cs336_staff.problems.scaled_dot_product_attention.programs import attention

# Rescaling: what the online softmax carries must be on one scale


def kept(before: Tensor, now: Tensor) -> float:
    return 1.0


def inverted(before: Tensor, now: Tensor) -> Tensor:
    return torch.exp(finite(now) - before).masked_fill(before.isinf(), 0.0)


def maximum_of_block(before: Tensor, scores: Tensor) -> Tensor:
    return finite(scores.amax(-1, keepdim=True))


def divided_in_every_block(state: State, scores: Tensor, V: Tensor) -> State:
    maximum, total, weighted = absorb(state, scores, V)
    return maximum, total, weighted / total.masked_fill(total == 0, 1.0)


def from_zero(Q: Tensor, V: Tensor) -> State:
    maximum, total, weighted = start(Q, V)
    return torch.zeros_like(maximum), total, weighted


def from_one(Q: Tensor, V: Tensor) -> State:
    maximum, total, weighted = start(Q, V)
    return torch.zeros_like(maximum), torch.ones_like(total), weighted


absorb_with_nan = partial(
    absorb,
    weigh=lambda scores, now: torch.exp(scores - now),
    shrink_total=lambda before, now: torch.exp(before - now),
    shrink_sum=lambda before, now: torch.exp(before - now),
)


# Blocks


def full_blocks(length: int, size: int) -> list[slice]:
    return [block for block in cut(length, size) if block.stop - block.start == size]


def zeros_for_the_rest(blocks: list[Tensor], Q: Tensor) -> Tensor:
    answer = torch.cat(blocks, -2).to(Q.dtype)
    return F.pad(answer, (0, 0, 0, Q.shape[-2] - answer.shape[-2]))


def keys_counted_by_queries(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, block_size: int | None) -> Tensor:
    def as_many_as_of_queries(keys: int, size: int) -> list[slice]:
        step = block_size or CHOSEN_BLOCK_SIZE
        return [slice(start, min(start + step, keys)) for start in range(0, Q.shape[-2], step)]

    return blockwise(Q, K, V, mask, block_size, key_blocks=as_many_as_of_queries)


def in_each_block(combine: Part) -> Part:
    """Attention to each block of keys by itself; `combine` makes the answer of theirs."""

    def combined(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, block_size: int | None) -> Tensor:
        queries, keys = Q.shape[-2], K.shape[-2]
        answers = []
        for columns in cut(keys, block_size or CHOSEN_BLOCK_SIZE):
            part = None if mask is None else tile(mask, slice(None), columns, queries, keys)
            answers.append(attention(Q, K[..., columns, :], V[..., columns, :], part))
        return combine(answers)

    return combined


# Masks and inputs


def from_the_start(block: slice) -> slice:
    return slice(0, block.stop - block.start)


def required(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, block_size: int | None) -> Tensor:
    if mask is None:
        raise TypeError("'NoneType' object is not subscriptable")
    return blockwise(Q, K, V, mask, block_size)


def queries_in_place(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, block_size: int | None) -> Tensor:
    Q *= Q.shape[-1] ** -0.5
    return blockwise(Q, K, V, mask, block_size, score=lambda Q, K: Q @ K.mT)


MISTAKES = (
    # Rescaling
    wrong("blockwise-sum-not-rescaled", absorb=partial(absorb, shrink_total=kept)),
    wrong("blockwise-values-not-rescaled", absorb=partial(absorb, shrink_sum=kept)),
    wrong("blockwise-nothing-rescaled", absorb=partial(absorb, shrink_total=kept, shrink_sum=kept)),
    wrong("blockwise-rescaled-upside-down", absorb=partial(absorb, shrink_total=inverted, shrink_sum=inverted)),
    wrong(
        "blockwise-new-block-not-rescaled",
        absorb=partial(absorb, weigh=lambda scores, now: torch.exp(scores - maximum_of_block(now, scores))),
    ),
    wrong(
        "blockwise-maxima-of-blocks",
        absorb=partial(absorb, maximum=maximum_of_block, shrink_total=kept, shrink_sum=kept),
    ),
    wrong("blockwise-maximum-falls", absorb=partial(absorb, maximum=maximum_of_block)),
    wrong("blockwise-no-maximum", absorb=partial(absorb, maximum=lambda before, scores: torch.zeros_like(before))),
    wrong(
        "blockwise-maximum-of-rows",
        absorb=partial(absorb, maximum=lambda before, scores: torch.maximum(before, scores.amax())),
    ),
    wrong("blockwise-maximum-from-0", start=from_zero),
    wrong("blockwise-extra-key", start=from_one),
    wrong("blockwise-divided-in-every-block", absorb=divided_in_every_block, divide=lambda state: state[2]),
    wrong("blockwise-hidden-block-nan", absorb=absorb_with_nan),
    wrong("blockwise-hidden-block-zeros", absorb=absorb_with_nan, divide=lambda state: divide(state).nan_to_num(0.0)),
    wrong("blockwise-nan-for-nothing", divide=lambda state: state[2] / state[1]),
    # Blocks
    wrong("blockwise-averaged", in_each_block(lambda answers: torch.stack(answers).mean(0))),
    wrong("blockwise-summed", in_each_block(lambda answers: torch.stack(answers).sum(0))),
    wrong("blockwise-last-block-only", in_each_block(lambda answers: answers[-1])),
    wrong("blockwise-first-block-only", in_each_block(lambda answers: answers[0])),
    wrong("blockwise-last-keys-dropped", key_blocks=full_blocks),
    wrong("blockwise-last-queries-dropped", row_blocks=full_blocks, join=zeros_for_the_rest),
    wrong("blockwise-last-blocks-dropped", row_blocks=full_blocks, key_blocks=full_blocks, join=zeros_for_the_rest),
    wrong("blockwise-keys-counted-by-queries", keys_counted_by_queries),
    wrong("blockwise-own-block-only", walked=lambda rows, columns: rows.start == columns.start),
    wrong("blockwise-later-blocks-left-out", walked=lambda rows, columns: columns.start <= rows.start),
    wrong("blockwise-no-scale", score=lambda Q, K: Q @ K.mT),
    wrong("blockwise-answer-like-queries", join=lambda blocks, Q: torch.zeros_like(Q).copy_(torch.cat(blocks, -2))),
    wrong("blockwise-float32-out", join=lambda blocks, Q: torch.cat(blocks, -2)),
    # Masks and inputs
    wrong(
        "blockwise-mask-of-first-block",
        tile=lambda mask, rows, columns, *lengths: tile(mask, from_the_start(rows), from_the_start(columns), *lengths),
    ),
    wrong(
        "blockwise-mask-of-first-keys",
        tile=lambda mask, rows, columns, *lengths: tile(mask, rows, from_the_start(columns), *lengths),
    ),
    wrong(
        "blockwise-mask-of-first-queries",
        tile=lambda mask, rows, columns, *lengths: tile(mask, from_the_start(rows), columns, *lengths),
    ),
    wrong("blockwise-mask-not-expanded", tile=lambda mask, rows, columns, *lengths: mask[..., rows, columns]),
    wrong("blockwise-mask-ignored", hide=lambda scores, tile: scores),
    wrong("blockwise-mask-inverted", hide=lambda scores, tile: hide(scores, ~tile)),
    wrong("blockwise-mask-required", required),
    wrong("blockwise-fill-finite", hide=lambda scores, tile: scores.masked_fill(~tile, torch.finfo(scores.dtype).min)),
    wrong("blockwise-fill-0", hide=lambda scores, tile: scores * tile),
    wrong("blockwise-queries-in-place", queries_in_place),
    wrong("blockwise-detached", lambda *arguments: blockwise(*arguments).detach()),
)
