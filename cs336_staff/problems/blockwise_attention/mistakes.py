"""Blockwise attention that is wrong: mistakes in its steps, and some that its numbers do not show."""

import torch
from torch import Tensor

from cs336_staff.authoring.room import wrong, wrong_steps
from cs336_staff.problems.blockwise_attention.program import FIRST, JOIN, MAXIMUM, PADDED, TABLE, TILE, WALK
from cs336_staff.problems.blockwise_attention.programs import blockwise, hide


def required(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, block_size: int | None) -> Tensor:
    if mask is None:
        raise TypeError("'NoneType' object is not subscriptable")
    return blockwise(Q, K, V, mask, block_size)


def queries_in_place(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, block_size: int | None) -> Tensor:
    Q *= Q.shape[-1] ** -0.5
    return blockwise(Q, K, V, mask, block_size, score=lambda Q, K: Q @ K.mT)


STEPS = (*JOIN, *MAXIMUM, *PADDED, *FIRST, *WALK, *TILE)

MISTAKES = (
    *wrong_steps("blockwise", STEPS, table=TABLE),
    wrong("blockwise-nan-for-nothing", divide=lambda state: state[2] / state[1]),
    wrong("blockwise-no-scale", score=lambda Q, K: Q @ K.mT),
    wrong("blockwise-answer-like-queries", join=lambda blocks, Q: torch.zeros_like(Q).copy_(torch.cat(blocks, -2))),
    wrong("blockwise-float32-out", join=lambda blocks, Q: torch.cat(blocks, -2)),
    wrong("blockwise-mask-not-expanded", tile=lambda mask, rows, columns, *lengths: mask[..., rows, columns]),
    wrong("blockwise-mask-ignored", hide=lambda scores, tile: scores),
    wrong("blockwise-mask-inverted", hide=lambda scores, tile: hide(scores, ~tile)),
    wrong("blockwise-mask-required", required),
    wrong("blockwise-fill-finite", hide=lambda scores, tile: scores.masked_fill(~tile, torch.finfo(scores.dtype).min)),
    wrong("blockwise-fill-0", hide=lambda scores, tile: scores * tile),
    wrong("blockwise-queries-in-place", queries_in_place),
    wrong("blockwise-detached", lambda *arguments: blockwise(*arguments).detach()),
)
