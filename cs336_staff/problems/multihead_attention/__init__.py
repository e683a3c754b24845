"""Multi-head attention of one sequence on another."""

from cs336_staff.authoring.room import Room
from cs336_staff.problems.multihead_attention.cases import HIDDEN, PUBLIC
from cs336_staff.problems.multihead_attention.mistakes import MISTAKES
from cs336_staff.problems.multihead_attention.program import RIGHT, multihead_of_two
from cs336_staff.problems.multihead_attention.reference import run_multihead_attention
from cs336_staff.problems.multihead_self_attention.programs import in_steps

ROOM = Room(
    answers=[run_multihead_attention],
    public=PUBLIC,
    hidden=HIDDEN,
    build=in_steps(multihead_of_two, RIGHT),
    adapters=lambda multihead: {"run_multihead_attention": multihead},
    mistakes=MISTAKES,
)
