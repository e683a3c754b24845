"""A linear layer that is wrong: every mistake that its examination knows, but for those of precision."""

from cs336_kit.problems.linear.program import ANSWER, WEIGHTS
from cs336_staff.authoring.room import wrong_steps

MISTAKES = tuple(wrong_steps("linear", (*WEIGHTS, *ANSWER)))
