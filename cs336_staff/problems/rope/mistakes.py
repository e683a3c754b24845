"""RoPE that is wrong: every mistake that its examination knows."""

from cs336_kit.problems.rope.program import TABLE
from cs336_staff.authoring.room import wrong_steps

MISTAKES = tuple(wrong_steps("rope", TABLE.changes))
