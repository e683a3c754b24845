"""Examine a student's blockwise attention from block to block: which it visits, how it rescales, how it cuts the mask.

In one block it is attention and is examined as such. The rest is a comparison with what it gives itself in one block,
so that a mistake which has nothing to do with blocks is not found once more for each of them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.examination.attention import examine_attention
from cs336_kit.examination.attention_calls import Call, has_mask
from cs336_kit.examination.attention_mask import MASKS
from cs336_kit.examination.crash import Variation, try_calls
from cs336_kit.examination.experiment import Ask, Finding, examine, near

SECTION = "8 Blockwise attention"
ONE_BLOCK = 64
finding = partial(Finding, section=SECTION)


def has_blocks(case: Case) -> bool:
    """More than one; where the student chooses the size, nobody knows."""
    return case.block_size is None or case.block_size < max(case.Q.shape[-2], case.K.shape[-2])


def masked_blocks(case: Case) -> bool:
    return has_blocks(case) and has_mask(case)


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
    Variation[BlockCall](
        "one-block", "with a block as long as the sequence", lambda c: replace(c, block_size=5), SHAPES, has_blocks
    ),
    Variation[BlockCall](
        "even-blocks",
        "where the block size divides the lengths",
        lambda c: replace(c, queries=4, keys=4),
        "With 5 positions and blocks of 2, how many blocks are there, and how long is the last?",
        has_blocks,
    ),
    Variation[BlockCall](
        "without-mask",
        "with mask=None",
        lambda c: replace(c, mask=None),
        "Which keys may a query attend to when there is no mask?",
        lambda case: case.mask is None,
    ),
    Variation[BlockCall](
        "no-block-size",
        "with block_size=None",
        lambda c: replace(c, block_size=None),
        "Which size do you choose when none is given?",
        lambda case: case.block_size is None,
    ),
    Variation[BlockCall]("blocks-of-1", "with blocks of 1", lambda c: replace(c, block_size=1), SHAPES, has_blocks),
    Variation[BlockCall](
        "large-blocks",
        "with a block longer than the sequence",
        lambda c: replace(c, block_size=ONE_BLOCK),
        SHAPES,
        lambda case: not has_blocks(case),
    ),
    Variation[BlockCall](
        "more-keys", "with more keys than queries", lambda c: replace(c, keys=9), SHAPES, lambda case: has_blocks(case)
    ),
    Variation[BlockCall](
        "more-queries", "with more queries than keys", lambda c: replace(c, queries=9), SHAPES, has_blocks
    ),
    Variation[BlockCall](
        "padding",
        "with a mask of shape (batch, 1, keys)",
        lambda c: replace(c, mask="batch 1 keys"),
        "A padding mask has the shape (batch, 1, keys). What does mask[..., 2:4, :] give you?",
        lambda case: has_mask(case) and 1 in case.mask.shape,
    ),
)


@dataclass
class Blockwise:
    """The student's function, and what has been found out about it.

    Args:
        ask: asks it.
        needs_mask: it fails without one.
        walks: no block of keys or queries is left out, where all blocks are of one size.
        joins: blocks are put together as they should be.
        tiled: each block gets its own part of the mask.
    """

    ask: Ask
    needs_mask: bool
    walks: bool = True
    joins: bool = True
    tiled: bool = True

    def weights(self, Q: Tensor, K: Tensor, block_size: int, mask: Tensor | None = None) -> Tensor:
        if mask is None and self.needs_mask:
            mask = torch.ones(Q.shape[-2], K.shape[-2], dtype=torch.bool)
        V = torch.eye(K.shape[-2]).expand(*K.shape[:-2], -1, -1)
        return self.ask.tensor((*Q.shape[:-1], K.shape[-2]), Q, K, V, mask, block_size)

    def beside(self, scores: list[float], block_size: int = 2) -> tuple[Tensor, Tensor]:
        """The weights of the last query with scores like these, in blocks and in one."""
        Q, K = torch.zeros(1, len(scores), 4), torch.zeros(1, len(scores), 4)
        Q[..., 0], K[..., 0] = 2.0, torch.tensor(scores)  # 2 is √d_k
        return self.weights(Q, K, block_size)[0, -1], self.weights(Q, K, ONE_BLOCK)[0, -1]


def examine_blockwise(run: Callable[..., Any]) -> list[Finding]:
    """Say what is wrong with `run(Q, K, V, mask, block_size)`, the most fundamental first."""
    ask = Ask(run)
    usual = "for (batch, positions, d) with a mask and blocks of 2"
    calls = try_calls(ask, "blockwise", SECTION, BlockCall(), usual, VARIATIONS)
    if calls.works is None:
        return calls.findings
    student = Blockwise(ask, "without-mask" in calls.failed)
    in_one_block = examine_attention(lambda Q, K, V, mask=None: run(Q, K, V, mask, ONE_BLOCK))
    known = {found.id.removeprefix("attention-") for found in in_one_block}
    crashes = [found for found in calls.findings if found.id.removeprefix("blockwise-") not in known]
    experiments = (walked, rescaled, falling, tiles, hidden_block)
    found = examine(partial(each, student) for each in experiments)
    if not found and not calls.findings:
        found = examine((partial(any_size, student), partial(memory, student)))
    return [*crashes, *in_one_block, *found]


def walked(student: Blockwise) -> Finding | None:
    """List the keys that the queries of each block see without a mask: 4 queries and 11 keys in blocks of 3."""
    Q, K, _ = Call((2,), 4, 11, 4, 4).tensors()
    came, one = student.weights(Q, K, 3)[0], student.weights(Q, K, ONE_BLOCK)[0]
    seen = came != 0
    if seen.all() or not (one != 0).all():
        return None
    student.walks = bool((student.weights(Q, K[:, :4], 2) != 0).all())
    queries, keys = torch.arange(4).view(4, 1), torch.arange(11)
    patterns = {
        "last-keys-dropped": ((keys < 9).expand(4, 11), "The last block of keys, which is shorter, is left out."),
        "last-queries-dropped": (
            (queries < 3).expand(4, 11),
            "The last block of queries, which is shorter, is left out.",
        ),
        "last-blocks-dropped": ((keys < 9) & (queries < 3), "The last, shorter blocks of both are left out."),
        "first-block-only": ((keys < 3).expand(4, 11), "The loop over the keys ends after one iteration."),
        "last-block-only": ((keys > 8).expand(4, 11), "Each block of keys overwrites the one before."),
        "own-block-only": (queries // 3 == keys // 3, "A block of queries sees only the keys in the same place."),
        "later-blocks-left-out": (
            queries // 3 >= keys // 3,
            "Blocks of later keys are left out, as if it were causal.",
        ),
        "keys-counted-by-queries": ((keys < 6).expand(4, 11), "There are as many blocks of keys as of queries: two."),
    }
    id, means = next(
        ((id, means) for id, (p, means) in patterns.items() if torch.equal(p, seen)), ("blocks-left-out", "")
    )
    rows = " and ".join(f"query {q} gives weight to {_range(seen[q])}" for q in (0, 3))
    measured = f"With 4 queries, 11 keys, no mask and block_size=3, {rows}; every query should give some to all 11."
    question = "For one query, print the columns of every block that you look at. Which are missing?"
    return finding(f"blockwise-{id}", measured, means, question, touches=has_blocks)


def rescaled(student: Blockwise) -> Finding | None:
    """Test how two blocks are combined: when the second has the larger scores, and when the first has."""
    rising, one_rising = student.beside([0.0, -1.0, 3.0, 3.0])
    falling, one_falling = student.beside([3.0, 3.0, 0.0, -1.0])
    left_out = (rising == 0).any() or (falling == 0).any()
    if left_out or (near(rising, one_rising) and near(falling, one_falling)):
        return None
    student.joins = False
    blocks = torch.stack((rising.view(2, 2).sum(-1), falling.view(2, 2).sum(-1)))
    if near(rising, one_rising):
        scores, came, right = "(3, 3) and (0, -1)", blocks[1], one_falling.view(2, 2).sum(-1)
    else:
        scores, came, right = "(0, -1) and (3, 3)", blocks[0], one_rising.view(2, 2).sum(-1)
    measured = (
        f"Of two blocks with the scores {scores} the first gets the weight {came[0]:.4g} and the second {came[1]:.4g}; "
        f"in one block you give them {right[0]:.4g} and {right[1]:.4g}."
    )
    if near(blocks, blocks.mean()):
        id, means = ("averaged", "averages") if near(blocks.sum(-1), 1.0) else ("summed", "adds up")
        question = "Two keys in one block and one in the next, all with the same score: what weight should each get?"
        means = f"Your code takes the softmax of each block by itself and {means} what comes out."
        return finding(f"blockwise-{id}", measured, means, question, touches=has_blocks)
    gap = float((one_rising[2] / one_rising[0]).log())
    errors = [_between(came, one) / gap for came, one in ((rising, one_rising), (falling, one_falling))]
    sums = [near(each.sum(), 1.0) for each in (rising, falling)]
    up, down = (round(x) if math.isfinite(x) and abs(x - round(x)) < 0.01 else None for x in errors)
    signature = (up, down, sums[0], sums[1])
    id, means, question = SIGNATURES.get(signature, ("blocks-not-joined", "", SHRINK))
    first = float((one_rising[:2].sum() / one_rising[0]).log())  # of the sum of the first block's exponentials
    if near(errors[0] * gap, first) and not all(sums):
        id, means = "divided-in-every-block", "You divide by the sum in every block, not once after the last."
        question = "Once the values are divided by their sum, how must that be undone before a block is added?"
    return finding(f"blockwise-{id}", measured, means, question, touches=has_blocks)


def _between(came: Tensor, one: Tensor) -> float:
    """The logarithm of how much too much the second block weighs beside the first."""
    ratio = (came / one).log()
    return float(ratio[2:].mean() - ratio[:2].mean())


def falling(student: Blockwise) -> Finding | None:
    """Check that a second block with far smaller scores does no harm."""
    came, one = student.beside([200.0, 199.0, 0.0, -1.0])
    if near(came, one) or not near(one.sum(), 1.0) or not came.isnan().any():
        return None
    measured = "Two blocks with the scores (200, 199) and (0, -1) give NaN; the same scores in one block do not."
    means = "The maximum may fall from one block to the next, and the factor then overflows."
    question = "Can the factor exp(old maximum - new maximum) be larger than 1?"
    return finding("blockwise-maximum-falls", measured, means, question, touches=has_blocks)


def tiles(student: Blockwise) -> Finding | None:
    """Find out which part of the mask a block gets: four queries and keys in blocks of 2."""
    Q, K, _ = Call((2,), 4, 4, 4, 4).tensors()
    came, one = student.weights(Q, K, 2, MASKS) != 0, student.weights(Q, K, ONE_BLOCK, MASKS) != 0
    if torch.equal(came, one) or not student.walks:
        return None
    readings = {
        "first-block": one[:, :2, :2].repeat(1, 2, 2),
        "first-keys": one[:, :, :2].repeat(1, 1, 2),
        "first-queries": one[:, :2].repeat(1, 2, 1),
    }
    id = next((id for id, reading in readings.items() if torch.equal(reading, came)), None)
    if id is None:
        return None
    student.tiled = False
    sequence, query = (came != one).any(-1).nonzero()[0].tolist()
    measured = (
        f"Under one mask query {query} of sequence {sequence} gives weight to {_range(came[sequence, query])} in "
        f"blocks of 2, and to {_range(one[sequence, query])} in one block."
    )
    means = {
        "first-block": "The tile of the first block is used for every block.",
        "first-keys": "The columns of the first block of keys are used for every block of keys.",
        "first-queries": "The rows of the first block of queries are used for every block of queries.",
    }[id]
    question = "Rows and columns of the mask are counted from the start of the sequence. Which belong to a block?"
    return finding(f"blockwise-mask-of-{id}", measured, means, question, touches=masked_blocks)


def hidden_block(student: Blockwise) -> Finding | None:
    """Read the answer to a query whose first block of keys is hidden."""
    Q, K, _ = Call((2,), 4, 4, 4, 4).tensors()
    mask = torch.tensor([False, False, True, True]).expand(4, 4)
    if not student.weights(Q, K, ONE_BLOCK, mask)[0, 0, 2:].any():
        mask = ~mask  # it is read the other way round
    came, one = student.weights(Q, K, 2, mask)[0, 0], student.weights(Q, K, ONE_BLOCK, mask)[0, 0]
    understood = student.walks and student.joins and student.tiled and near(one.sum(), 1.0)
    if not understood or near(came[2:], one[2:]):
        return None
    question = "What is the maximum of a block in which every score is -inf, and what do you do after it?"
    what = "When the first of two blocks of keys is hidden, the weights of the second"
    if came.isnan().any():
        return finding("blockwise-hidden-block-nan", f"{what} are NaN.", "", question, touches=masked_blocks)
    measured = f"{what} sum to {float(came.sum()):.3g}; they should sum to 1."
    zeros = not came.any()
    means = "Everything after a block that is hidden throughout is lost." if zeros else ""
    return finding(
        f"blockwise-hidden-block-{'zeros' if zeros else 'lost'}", measured, means, question, touches=masked_blocks
    )


def any_size(student: Blockwise) -> Finding | None:
    """Check that blocks do not change anything, where nothing else was found."""
    Q, K, _ = Call((2,), 7, 5, 4, 4).tensors()
    mask = torch.arange(5) <= torch.arange(7).unsqueeze(-1)
    one = student.weights(Q, K, ONE_BLOCK, mask)
    for size in (1, 2, 3, 5):
        came = student.weights(Q, K, size, mask)
        if not near(came, one):
            measured = (
                f"With block_size={size} your weights differ by up to {float((came - one).abs().max()):.3g} from those "
                "in one block; they should be the same."
            )
            question = "Compare block size 1 with a block as long as the sequence. Which block is to blame?"
            return finding("blockwise-blocks-differ", measured, "", question, touches=has_blocks)
    return None


class LargestTensor(torch.overrides.TorchFunctionMode):
    """Notes how many numbers are in the largest tensor that is made, apart from views."""

    numbers = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and not result._is_view():
            self.numbers = max(self.numbers, result.numel())
        return result


def memory(student: Blockwise) -> Finding | None:
    """Check that the matrix of all scores is never held: 60 queries and 70 keys in blocks of 8."""
    Q, K, V = Call((), 60, 70, 2, 2).tensors()
    mask = torch.ones(60, 70, dtype=torch.bool) if student.needs_mask else None
    with LargestTensor() as largest:
        student.ask(Q, K, V, mask, 8)
    if largest.numbers < 60 * 70:
        return None
    measured = (
        f"For 60 queries and 70 keys in blocks of 8 your code makes a tensor of {largest.numbers:,} numbers; "
        f"one block has 64 scores, and all blocks together have {60 * 70:,}."
    )
    question = "Which part of the scores does one block need?"
    return finding("blockwise-holds-matrix", measured, "", question, touches=has_blocks)


SHRINK = "The sums so far are relative to the old maximum. By what factor must they be multiplied when it grows?"
MAXIMUM = "Relative to which maximum were the exponentials of the previous block taken, and these?"
# How many times the difference of the two maxima the second block is too heavy, in its exponent, when its scores are
# the larger and when they are the smaller ones, and whether the weights sum to 1 then -> id, what it means, a question
SIGNATURES: dict[tuple[int | None, int | None, bool, bool], tuple[str, str, str]] = {
    (0, 0, False, True): (
        "sum-not-rescaled",
        "When the maximum grows, the weighted values are rescaled and the sum of the exponentials is not.",
        SHRINK,
    ),
    (-1, 0, False, True): (
        "values-not-rescaled",
        "When the maximum grows, the sum of the exponentials is rescaled and the weighted values are not.",
        SHRINK,
    ),
    (-1, 0, True, True): ("nothing-rescaled", "When the maximum grows, neither of the two sums is rescaled.", SHRINK),
    (-2, 0, True, True): (
        "rescaled-upside-down",
        "You rescale by exp(new maximum - old maximum), which is upside down.",
        "When the maximum grows, do exponentials taken relative to it become larger or smaller?",
    ),
    (0, 1, True, True): (
        "new-block-not-rescaled",
        "A block is taken relative to its own maximum, even where the maximum so far is larger.",
        MAXIMUM,
    ),
    (-1, 1, True, True): (
        "maxima-of-blocks",
        "Each block is taken relative to its own maximum, and the sums are added as if all maxima were the same.",
        MAXIMUM,
    ),
}


def _range(seen: Tensor) -> str:
    """ "the keys 0 to 2", of a row that says which are seen."""
    keys = seen.nonzero().flatten().tolist()
    if not keys:
        return "no key"
    if len(keys) > 2 and keys[-1] - keys[0] == len(keys) - 1:
        return f"the keys {keys[0]} to {keys[-1]}"
    return f"key {keys[0]}" if len(keys) == 1 else f"the keys {' and '.join(map(str, keys))}"
