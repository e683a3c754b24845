"""Blockwise attention that walks the wrong blocks, or puts together what they give in another way."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from cs336_staff.authoring.misconceptions.parts import (
    CHOSEN_BLOCK_SIZE,
    attention,
    blockwise,
    cut,
    in_blockwise,
    in_whole_blockwise,
    tile,
)

LAST_HINT = "With 7 positions and blocks of 3, how many blocks are there, and how long is the last?"
ALL_HINT = "Which keys may a query attend to? For one query, print the columns of every block that you look at."
PARTS_HINT = "Two keys in one block and one in the next, all with the same score: what should each of them weigh?"


def full_blocks(length: int, size: int) -> list[slice]:
    return [block for block in cut(length, size) if block.stop - block.start == size]


def zeros_for_the_rest(blocks: list[Tensor], Q: Tensor) -> Tensor:
    answer = torch.cat(blocks, -2).to(Q.dtype)
    missing = Q.shape[-2] - answer.shape[-2]
    return F.pad(answer, (0, 0, 0, missing))


def like_queries(blocks: list[Tensor], Q: Tensor) -> Tensor:
    return torch.zeros_like(Q).copy_(torch.cat(blocks, -2))


def keys_counted_by_queries(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, block_size: int | None = None
) -> Tensor:
    def as_many_as_of_queries(keys: int, size: int) -> list[slice]:
        step = block_size or CHOSEN_BLOCK_SIZE
        return [slice(start, min(start + step, keys)) for start in range(0, Q.shape[-2], step)]

    return blockwise(Q, K, V, mask, block_size, key_blocks=as_many_as_of_queries)


def softmax_of_each_block(combine: Callable[[list[Tensor]], Tensor]) -> Callable[..., Tensor]:
    """Attention to each block of keys by itself."""

    def combined(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, block_size: int | None = None) -> Tensor:
        queries, keys = Q.shape[-2], K.shape[-2]
        answers = []
        for columns in cut(keys, block_size or CHOSEN_BLOCK_SIZE):
            part = None if mask is None else tile(mask, slice(None), columns, queries, keys)
            answers.append(attention(Q, K[..., columns, :], V[..., columns, :], part))
        return combine(answers)

    return combined


ENTRIES = (
    in_whole_blockwise(
        "blockwise-averaged",
        "you took the softmax of each block by itself and averaged what came out",
        PARTS_HINT,
        softmax_of_each_block(lambda answers: torch.stack(answers).mean(0)),
    ),
    in_whole_blockwise(
        "blockwise-summed",
        "you took the softmax of each block by itself and added up what came out",
        PARTS_HINT,
        softmax_of_each_block(lambda answers: torch.stack(answers).sum(0)),
    ),
    in_whole_blockwise(
        "blockwise-last-block-only",
        "your answer is that of the last block of keys: each block overwrites the one before",
        ALL_HINT,
        softmax_of_each_block(lambda answers: answers[-1]),
    ),
    in_whole_blockwise(
        "blockwise-first-block-only",
        "your answer is that of the first block of keys: does the loop end after one turn?",
        ALL_HINT,
        softmax_of_each_block(lambda answers: answers[0]),
    ),
    in_blockwise(
        "blockwise-last-keys-dropped",
        "you dropped the last block of keys where it is shorter than the others",
        LAST_HINT,
        key_blocks=full_blocks,
    ),
    in_blockwise(
        "blockwise-last-queries-dropped",
        "you dropped the last block of queries where it is shorter than the others",
        LAST_HINT,
        row_blocks=full_blocks,
        join=zeros_for_the_rest,
    ),
    in_blockwise(
        "blockwise-last-blocks-dropped",
        "you dropped the last blocks of queries and of keys where they are shorter than the others",
        LAST_HINT,
        row_blocks=full_blocks,
        key_blocks=full_blocks,
        join=zeros_for_the_rest,
    ),
    in_whole_blockwise(
        "blockwise-keys-counted-by-queries",
        "you cut the keys into as many blocks as the queries",
        "Are there always as many keys as queries? Which of the two lengths ends the loop over the keys?",
        keys_counted_by_queries,
    ),
    in_blockwise(
        "blockwise-own-block-only",
        "the queries of a block saw the keys of the block in the same place, and no others",
        ALL_HINT,
        walked=lambda rows, columns: rows.start == columns.start,
    ),
    in_blockwise(
        "blockwise-always-causal",
        "you left out the blocks of later keys although the mask does not hide them",
        "Who decides which keys a query may attend to: attention, or whoever calls it?",
        walked=lambda rows, columns: columns.start <= rows.start,
    ),
    in_blockwise(
        "blockwise-no-scale",
        "you did not divide the scores of a block by √d_k",
        "In attention, what were the products of queries and keys divided by?",
        score=lambda Q, K: Q @ K.mT,
    ),
    in_blockwise(
        "blockwise-answer-like-queries",
        "you made room for the answer with the width of Q, which is d_k and not d_v",
        "Which shape has the answer: what has it from Q, and what from V?",
        join=like_queries,
    ),
    in_blockwise(
        "blockwise-float32-out",
        "your answer is float32 where the inputs are float16",
        "The sums are float32 for good reason. Which dtype should the answer have?",
        join=lambda blocks, Q: torch.cat(blocks, -2),
    ),
)
