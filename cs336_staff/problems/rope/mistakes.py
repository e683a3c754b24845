"""RoPE that is wrong: every mistake that its examination knows."""

from cs336_kit.problems.rope.program import TABLE
from cs336_staff.authoring.room import wrong_steps

# Those that whoever has them pays for once.
CARRIED = (
    *("pairs-halves", "concatenated", "swapped", "no-minus", "direction", "from-one", "theta-ignored", "precision"),
    *("exponent-half", "exponent-doubled", "exponent-positive", "exponent-from-one", "one-angle"),
)
MISTAKES = tuple(wrong_steps("rope", TABLE.changes, CARRIED))
