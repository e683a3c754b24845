"""Blockwise attention."""

from functools import partial

from cs336_staff.authoring.room import Room, whole
from cs336_staff.problems.blockwise_attention.cases import HIDDEN, PUBLIC
from cs336_staff.problems.blockwise_attention.mistakes import MISTAKES
from cs336_staff.problems.blockwise_attention.programs import STYLES, blockwise
from cs336_staff.problems.blockwise_attention.reference import run_blockwise_attention

ROOM = Room(
    answers=[run_blockwise_attention],
    public=PUBLIC,
    hidden=HIDDEN,
    build=lambda earlier: partial(blockwise),
    adapters=lambda blockwise: {
        "run_blockwise_attention": lambda Q, K, V, mask=None, block_size=None: blockwise(Q, K, V, mask, block_size)
    },
    styles={style: whole(program) for style, program in STYLES.items()},
    mistakes=MISTAKES,
)
