"""Multi-head attention of one sequence on another."""

from functools import partial

from cs336_staff.authoring.room import Room
from cs336_staff.problems.multihead_attention.cases import HIDDEN, PUBLIC
from cs336_staff.problems.multihead_attention.mistakes import MISTAKES
from cs336_staff.problems.multihead_attention.programs import multihead_of_two
from cs336_staff.problems.multihead_attention.reference import bound_multihead_attention, run_multihead_attention

ROOM = Room(
    answers={run_multihead_attention: bound_multihead_attention},
    public=PUBLIC,
    hidden=HIDDEN,
    build=lambda earlier: partial(multihead_of_two, earlier["scaled_dot_product_attention"], earlier["linear"]),
    adapters=lambda multihead: {"run_multihead_attention": multihead},
    mistakes=MISTAKES,
)
