"""RoPE that is wrong: mistakes in its steps."""

from cs336_staff.authoring.room import wrong_steps
from cs336_staff.problems.rope.program import TABLE

MISTAKES = tuple(wrong_steps("rope", TABLE.changes))
