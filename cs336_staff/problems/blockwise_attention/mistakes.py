"""Blockwise attention that is wrong."""

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from cs336_staff.authoring.room import Misconception, Part, wrong
from cs336_staff.problems.blockwise_attention.programs import (
    CHOSEN_BLOCK_SIZE,
    State,
    absorb,
    blockwise,
    cut,
    divide,
    finite,
    start,
    tile,
)
from cs336_staff.problems.scaled_dot_product_attention.programs import attention, hide

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


def in_each_block(id: str, what: str, combine: Part) -> Misconception:
    """Attention to each block of keys by itself; `combine` makes the answer of theirs."""

    def combined(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, block_size: int | None) -> Tensor:
        queries, keys = Q.shape[-2], K.shape[-2]
        answers = []
        for columns in cut(keys, block_size or CHOSEN_BLOCK_SIZE):
            part = None if mask is None else tile(mask, slice(None), columns, queries, keys)
            answers.append(attention(Q, K[..., columns, :], V[..., columns, :], part))
        return combine(answers)

    return wrong(id, what, combined)


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
    wrong(
        "blockwise-sum-not-rescaled",
        "rescales the weighted values and not the sum of the exponentials when the maximum grows",
        absorb=partial(absorb, shrink_total=kept),
    ),
    wrong(
        "blockwise-values-not-rescaled",
        "rescales the sum of the exponentials and not the weighted values when the maximum grows",
        absorb=partial(absorb, shrink_sum=kept),
    ),
    wrong(
        "blockwise-nothing-rescaled",
        "rescales neither of the two sums when the maximum grows",
        absorb=partial(absorb, shrink_total=kept, shrink_sum=kept),
    ),
    wrong(
        "blockwise-rescaled-upside-down",
        "rescales by exp(new maximum - old maximum), which is upside down",
        absorb=partial(absorb, shrink_total=inverted, shrink_sum=inverted),
    ),
    wrong(
        "blockwise-new-block-not-rescaled",
        "takes the exponentials of a block against its own maximum, also where the maximum so far is larger",
        absorb=partial(absorb, weigh=lambda scores, now: torch.exp(scores - maximum_of_block(now, scores))),
    ),
    wrong(
        "blockwise-maxima-of-blocks",
        "takes each block against its own maximum, and adds the sums up as if it were the same",
        absorb=partial(absorb, maximum=maximum_of_block, shrink_total=kept, shrink_sum=kept),
    ),
    wrong(
        "blockwise-maximum-anew",
        "takes the maximum of each block anew, so that rescaling overflows when it falls",
        absorb=partial(absorb, maximum=maximum_of_block),
    ),
    wrong(
        "blockwise-no-maximum",
        "takes the exponential of the scores without subtracting a maximum",
        absorb=partial(absorb, maximum=lambda before, scores: torch.zeros_like(before)),
    ),
    wrong(
        "blockwise-one-maximum-for-all",
        "subtracts the maximum of the whole block, not that of each query",
        absorb=partial(absorb, maximum=lambda before, scores: torch.maximum(before, scores.amax())),
    ),
    wrong("blockwise-maximum-from-0", "starts the running maximum at 0, not at -inf", start=from_zero),
    wrong("blockwise-total-from-1", "starts the sum at 1, as if there were one more key", start=from_one),
    wrong(
        "blockwise-divided-in-every-block",
        "divides by the sum in every block, not once after the last",
        absorb=divided_in_every_block,
        divide=lambda state: state[2],
    ),
    wrong(
        "blockwise-nan-for-hidden-block",
        "gives NaN where the first blocks of a query are wholly hidden",
        absorb=absorb_with_nan,
    ),
    wrong(
        "blockwise-zeros-for-hidden-block",
        "gives zeros where the first blocks of a query are wholly hidden: NaN is replaced at the end",
        absorb=absorb_with_nan,
        divide=lambda state: divide(state).nan_to_num(0.0),
    ),
    wrong(
        "blockwise-nan-for-nothing",
        "divides by a sum of 0 where a query may attend to nothing",
        divide=lambda state: state[2] / state[1],
    ),
    # Blocks
    in_each_block(
        "blockwise-averaged",
        "takes the softmax of each block by itself and averages what comes out",
        lambda answers: torch.stack(answers).mean(0),
    ),
    in_each_block(
        "blockwise-summed",
        "takes the softmax of each block by itself and adds up what comes out",
        lambda answers: torch.stack(answers).sum(0),
    ),
    in_each_block(
        "blockwise-last-block-only",
        "gives the answer of the last block of keys: each block overwrites the one before",
        lambda answers: answers[-1],
    ),
    in_each_block(
        "blockwise-first-block-only",
        "gives the answer of the first block of keys: the loop ends after one turn",
        lambda answers: answers[0],
    ),
    wrong(
        "blockwise-last-keys-dropped",
        "drops the last block of keys where it is shorter than the others",
        key_blocks=full_blocks,
    ),
    wrong(
        "blockwise-last-queries-dropped",
        "drops the last block of queries where it is shorter than the others",
        row_blocks=full_blocks,
        join=zeros_for_the_rest,
    ),
    wrong(
        "blockwise-last-blocks-dropped",
        "drops the last blocks of queries and of keys where they are shorter than the others",
        row_blocks=full_blocks,
        key_blocks=full_blocks,
        join=zeros_for_the_rest,
    ),
    wrong(
        "blockwise-keys-counted-by-queries",
        "cuts the keys into as many blocks as the queries",
        keys_counted_by_queries,
    ),
    wrong(
        "blockwise-own-block-only",
        "lets the queries of a block see the keys of the block in the same place, and no others",
        walked=lambda rows, columns: rows.start == columns.start,
    ),
    wrong(
        "blockwise-always-causal",
        "leaves out the blocks of later keys although the mask does not hide them",
        walked=lambda rows, columns: columns.start <= rows.start,
    ),
    wrong(
        "blockwise-no-scale",
        "does not divide the scores of a block by √d_k",
        score=lambda Q, K: Q @ K.mT,
    ),
    wrong(
        "blockwise-answer-like-queries",
        "makes room for the answer with the width of Q, which is d_k and not d_v",
        join=lambda blocks, Q: torch.zeros_like(Q).copy_(torch.cat(blocks, -2)),
    ),
    wrong(
        "blockwise-float32-out",
        "gives float32 where the inputs are float16",
        join=lambda blocks, Q: torch.cat(blocks, -2),
    ),
    # Masks and inputs
    wrong(
        "blockwise-mask-of-first-block",
        "uses the first tile of the mask for every block",
        tile=lambda mask, rows, columns, *lengths: tile(mask, from_the_start(rows), from_the_start(columns), *lengths),
    ),
    wrong(
        "blockwise-mask-of-first-keys",
        "uses the columns of the first block of keys in the mask for every block of keys",
        tile=lambda mask, rows, columns, *lengths: tile(mask, rows, from_the_start(columns), *lengths),
    ),
    wrong(
        "blockwise-mask-of-first-queries",
        "uses the rows of the first block of queries in the mask for every block of queries",
        tile=lambda mask, rows, columns, *lengths: tile(mask, from_the_start(rows), columns, *lengths),
    ),
    wrong(
        "blockwise-mask-not-expanded",
        "cuts a block out of a mask axis of size 1, of which nothing is left from the second block on",
        tile=lambda mask, rows, columns, *lengths: mask[..., rows, columns],
    ),
    wrong("blockwise-mask-ignored", "does not use the mask in any block", hide=lambda scores, tile: scores),
    wrong(
        "blockwise-mask-inverted",
        "hides in every block what the mask allows and keeps what it forbids",
        hide=lambda scores, tile: hide(scores, ~tile),
    ),
    wrong("blockwise-mask-required", "needs a mask, but there may be none (mask=None)", required),
    wrong(
        "blockwise-fill-finite",
        "fills the forbidden scores of a block with a large negative number (-1e9, finfo.min), not with -inf",
        hide=lambda scores, tile: scores.masked_fill(~tile, torch.finfo(scores.dtype).min),
    ),
    wrong(
        "blockwise-fill-0",
        "fills the forbidden scores of a block with 0 (or multiplies them by the mask)",
        hide=lambda scores, tile: scores * tile,
    ),
    wrong(
        "blockwise-queries-in-place",
        "changes Q in place, perhaps by way of a slice of it",
        queries_in_place,
    ),
    wrong(
        "blockwise-detached",
        "cuts the blocks off from autograd",
        lambda *arguments: blockwise(*arguments).detach(),
    ),
)
