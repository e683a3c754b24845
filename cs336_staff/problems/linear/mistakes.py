"""A linear layer that is wrong: mistakes in its steps, but for those of precision."""

from cs336_staff.authoring.room import wrong_steps
from cs336_staff.problems.linear.program import ANSWER, WEIGHTS

MISTAKES = tuple(wrong_steps("linear", (*WEIGHTS, *ANSWER)))
