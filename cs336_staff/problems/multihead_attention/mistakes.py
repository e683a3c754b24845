"""Attention between two sequences that is wrong: mistakes in its steps, not those of attention."""

from cs336_staff.authoring.room import wrong_steps
from cs336_staff.problems.multihead_attention.program import ALLOWED, HIDE, NOTHING, SEQUENCES
from cs336_staff.problems.multihead_self_attention.program import IN_HEADS

RAISE = ("keys-from-query", "queries-keys-swapped", "over-heads", "over-heads-causal")  # where lengths differ
STEPS = (*SEQUENCES, *IN_HEADS, *ALLOWED, *HIDE, *NOTHING)
MISTAKES = tuple(wrong_steps("cross", (step for step in STEPS if step.id not in RAISE)))
