"""Blockwise attention whose online softmax does not keep its sums on one scale."""

from functools import partial

import torch
from torch import Tensor

from cs336_staff.authoring.misconceptions.parts import (
    State,
    absorb,
    divide,
    finite,
    in_blockwise,
    start,
)

SHRINK_HINT = (
    "The sums so far were taken against the old maximum. By which factor must they be multiplied when it grows? "
    "Which of them did you multiply?"
)
MAXIMUM_HINT = "Against which maximum were the exponentials of the block before taken, and against which are these?"
HIDDEN_HINT = "What is the maximum of a block in which every score is -inf, and what is -inf minus -inf?"
START_HINT = "Before the first block no score was seen. What is the largest of no numbers, and the sum of none?"


def kept(before: Tensor, now: Tensor) -> float:
    return 1.0


def inverted(before: Tensor, now: Tensor) -> Tensor:
    return torch.exp(finite(now) - before).masked_fill(before.isinf(), 0.0)


def maximum_of_block(before: Tensor, scores: Tensor) -> Tensor:
    return finite(scores.amax(-1, keepdim=True))


def weigh_by_block(scores: Tensor, now: Tensor) -> Tensor:
    return torch.exp(scores - maximum_of_block(now, scores))


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

ENTRIES = (
    in_blockwise(
        "blockwise-sum-not-rescaled",
        "you rescaled the weighted values and not the sum of the exponentials when the maximum grew",
        SHRINK_HINT,
        absorb=partial(absorb, shrink_total=kept),
    ),
    in_blockwise(
        "blockwise-values-not-rescaled",
        "you rescaled the sum of the exponentials and not the weighted values when the maximum grew",
        SHRINK_HINT,
        absorb=partial(absorb, shrink_sum=kept),
    ),
    in_blockwise(
        "blockwise-nothing-rescaled",
        "you rescaled neither of the two sums when the maximum grew",
        SHRINK_HINT,
        absorb=partial(absorb, shrink_total=kept, shrink_sum=kept),
    ),
    in_blockwise(
        "blockwise-rescaled-upside-down",
        "you rescaled by exp(new maximum - old maximum), which is upside down",
        "When the maximum grows, do exponentials taken against it become larger or smaller?",
        absorb=partial(absorb, shrink_total=inverted, shrink_sum=inverted),
    ),
    in_blockwise(
        "blockwise-new-block-not-rescaled",
        "you took the exponentials of a block against its own maximum, also where the maximum so far is larger",
        MAXIMUM_HINT,
        absorb=partial(absorb, weigh=weigh_by_block),
    ),
    in_blockwise(
        "blockwise-maxima-of-blocks",
        "each block was taken against its own maximum, and the sums added up as if it were the same",
        MAXIMUM_HINT,
        absorb=partial(absorb, maximum=maximum_of_block, shrink_total=kept, shrink_sum=kept),
    ),
    in_blockwise(
        "blockwise-maximum-anew",
        "you took the maximum of each block anew, so that rescaling overflows when it falls",
        "Can the factor exp(old maximum - new maximum) be larger than 1? How large, when the maximum falls by 100?",
        absorb=partial(absorb, maximum=maximum_of_block),
    ),
    in_blockwise(
        "blockwise-no-maximum",
        "you took the exponential of the scores without subtracting a maximum",
        "What is exp(100) in float32? Which number may be taken from every score of a query?",
        absorb=partial(absorb, maximum=lambda before, scores: torch.zeros_like(before)),
    ),
    in_blockwise(
        "blockwise-one-maximum-for-all",
        "you subtracted the maximum of the whole block, not that of each query",
        "Take two queries, one with scores near 0 and one near -300. What is left of the second?",
        absorb=partial(absorb, maximum=lambda before, scores: torch.maximum(before, scores.amax())),
    ),
    in_blockwise(
        "blockwise-maximum-from-0",
        "your running maximum starts at 0, not at -inf",
        START_HINT,
        start=from_zero,
    ),
    in_blockwise(
        "blockwise-total-from-1",
        "your sum starts at 1, as if there were one more key",
        START_HINT,
        start=from_one,
    ),
    in_blockwise(
        "blockwise-divided-in-every-block",
        "you divided by the sum in every block, not once after the last",
        "Once the values so far are divided by their sum, what must they be multiplied by before a block is added?",
        absorb=divided_in_every_block,
        divide=lambda state: state[2],
    ),
    in_blockwise(
        "blockwise-nan-for-hidden-block",
        "your answer is NaN where the first blocks of a query are wholly hidden",
        HIDDEN_HINT,
        absorb=absorb_with_nan,
    ),
    in_blockwise(
        "blockwise-zeros-for-hidden-block",
        "a query whose first blocks are wholly hidden gets zeros: was NaN replaced at the end?",
        HIDDEN_HINT,
        absorb=absorb_with_nan,
        divide=lambda state: divide(state).nan_to_num(0.0),
    ),
    in_blockwise(
        "blockwise-nan-for-nothing",
        "you divided by a sum of 0 where a query may attend to nothing",
        "What is the sum of the exponentials of a query that saw no key, and what do you get when you divide by it?",
        divide=lambda state: state[2] / state[1],
    ),
)
