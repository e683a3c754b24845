"""Examine a student's blockwise attention."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.engine.compare import near
from cs336_kit.examination.calls import Variation
from cs336_kit.examination.diagnosis import diagnose
from cs336_kit.examination.experiment import Ask, Finding, Finds, about, examine
from cs336_kit.examination.table import Answers
from cs336_kit.problems.blockwise_attention.program import LIKE_ATTENTION, ONE_BLOCK, TABLE
from cs336_kit.problems.scaled_dot_product_attention import facts as attention
from cs336_kit.problems.scaled_dot_product_attention.examination import gradients_with_nothing
from cs336_kit.problems.scaled_dot_product_attention.program import normal
from cs336_kit.problems.scaled_dot_product_attention.variations import VARIATIONS as OF_ATTENTION
from cs336_kit.problems.scaled_dot_product_attention.variations import Call


def has_blocks(case: Case) -> bool:
    """More than one; where the student chooses the size, nobody knows."""
    return case.block_size is None or case.block_size < max(case.Q.shape[-2], case.K.shape[-2])


@dataclass(frozen=True)
class BlockCall(Call):
    """A call of attention in blocks."""

    queries: int = 5
    keys: int = 5
    block_size: int | None = 2

    @property
    def arguments(self) -> tuple[Any, ...]:
        return (*super().arguments, self.block_size)


SHAPES = "Which part of Q, K, V and the mask belongs to a block, and what shape does it have in the last block?"
VARIATIONS = (
    Variation("one-block", "with a block as long as the sequence", {"block_size": 5}, SHAPES, has_blocks),
    Variation(
        "even-blocks",
        "where the block size divides the lengths",
        {"queries": 4, "keys": 4},
        "With 5 positions and blocks of 2, how many blocks are there, and how long is the last?",
        has_blocks,
    ),
    Variation(
        "no-block-size",
        "with block_size=None",
        {"block_size": None},
        "Which size do you choose when none is given?",
        lambda case: case.block_size is None,
    ),
    Variation("blocks-of-1", "with blocks of 1", {"block_size": 1}, SHAPES, has_blocks),
    Variation(
        "large-blocks",
        "with a block longer than the sequence",
        {"block_size": ONE_BLOCK},
        SHAPES,
        lambda case: not has_blocks(case),
    ),
    Variation("more-keys", "with more keys than queries", {"keys": 9}, SHAPES, has_blocks),
    Variation("more-queries", "with more queries than keys", {"queries": 9}, SHAPES, has_blocks),
    *(each for each in OF_ATTENTION if each.id not in ("mask-not-given", "other-keys")),
)


@about("blockwise", "B3 Blockwise attention")
def examine_blockwise(run: Callable[..., Any]) -> list[Finding]:
    """Say what is wrong with `run(Q, K, V, mask, block_size)`, the most fundamental first."""
    ask = Ask(run, "Q", "K", "V", "mask", "block_size")
    words = "for (batch, positions, d) with a mask and blocks of 2"
    found = diagnose(ask, TABLE, BlockCall(), words, VARIATIONS, facts)
    found = [_of_attention(each) if each.id in {change.id for change in LIKE_ATTENTION} else each for each in found]
    found += map(_of_attention, examine(in_one_block(ask), (gradients_with_nothing,)))
    return [*found, *examine(ask, (memory,))]


def _of_attention(found: Finding) -> Finding:
    return replace(found, id=f"attention-{found.id}", section="3 Attention")


def in_one_block(ask: Ask) -> Ask:
    """The same function, asked as attention is."""
    return Ask(lambda Q, K, V, mask=None: ask.function(Q, K, V, mask, ONE_BLOCK), "Q", "K", "V", "mask")


def facts(ask: Ask, unexplained: Answers) -> Sequence[Callable[[Ask], Finds]]:
    """The experiments, where the answers without a mask are explained, and where they are not."""
    of_attention = [lambda ask, fact=fact: fact(in_one_block(ask)) for fact in attention.facts(ask, unexplained)]
    return (*of_attention, any_size)


def any_size(ask: Ask) -> Finds:
    """Check that blocks do not change anything."""
    Q, K, V = normal((2,), 7, 5, 4, 4)
    for mask in (None, torch.arange(5) <= torch.arange(7).unsqueeze(-1)):
        answer = partial(ask.tensor, (2, 7, 4), Q, K, V, mask)
        one = answer(ONE_BLOCK)
        for size in (1, 2, 3, 5):
            came = answer(size)
            if not near(came, one):
                measured = (
                    f"With block_size={size} your answer differs by up to {float((came - one).abs().max()):.3g} from "
                    "that in one block; they should be the same."
                )
                question = "Compare block size 1 with a block as long as the sequence. Which block is to blame?"
                return Finding("blocks-differ", measured, "", question, has_blocks)
    return None


class LargestTensor(torch.overrides.TorchFunctionMode):
    """Notes how many numbers are in the largest tensor that is made, apart from views."""

    numbers = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and not result._is_view():
            self.numbers = max(self.numbers, result.numel())
        return result


def memory(ask: Ask) -> Finds:
    """Check that the matrix of all scores is never held: 60 queries and 70 keys in blocks of 8."""
    Q, K, V = normal((), 60, 70, 2, 2)
    with LargestTensor() as largest:
        ask(Q, K, V, None, 8)
    if largest.numbers < 60 * 70:
        return None
    measured = (
        f"For 60 queries and 70 keys in blocks of 8 your code makes a tensor of {largest.numbers:,} numbers; "
        f"one block has 64 scores, and all blocks together have {60 * 70:,}."
    )
    question = "Which part of the scores does one block need?"
    return Finding("holds-matrix", measured, "", question, has_blocks, memory=True)
