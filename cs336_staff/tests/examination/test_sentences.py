"""What a student reads of a mistake: what is measured, what it means, and the question."""

import pytest

from cs336_kit.engine.room import load_room
from cs336_staff.authoring.programs import CATALOGUE

READ = {
    "softmax-epsilon": "You add 1e-7 to the sum.",
    "attention-scale-missing": (
        "For three dimensions, your answer at [0, 0, 5] is -1.018; it should be -0.5652. You do not scale the scores. "
        "A program that is right but for this mistake gives your numbers in all 19 calls. What is "
        "the variance of the dot product of two random vectors of length d_k?"
    ),
    "attention-mask-required": (
        "Your function works for (batch, positions, d) with a mask and fails with mask=None and when no mask is "
        "passed: `TypeError: bad operand type for unary ~: 'NoneType'`."
    ),
    "rope-exponent-half": (
        "For the vector (1, 0, 1, 0, …) at positions 0 to 5, your answer at [5, 6] is -0.5122; it should be 0.6301. "
        "Your exponent is i/d_k, not 2i/d_k. A program that is right but for this mistake gives your numbers in all 11 "
        "calls."
    ),
    "multihead-mask-missing": (
        "For five tokens, your answer at [0, 3] is -3.303; it should be 6.446. No token is hidden from any other: "
        "there is no causal mask in effect. A program that is right but for this mistake gives your numbers in all 10 "
        "calls."
    ),
    "module-dropout-share": (
        "In training, with a dropout of 0.25, 75% of the weights are 0 and the others 1.333 times what they were; it "
        "should be 25%, and 1.33 times. Weights are kept with probability p."
    ),
    "cross-head-mask-of-first-head": (
        "With a mask for each head, your answer at [0, 3, 0] is -8.949; it should be -0.1504. A mask (batch, heads, "
        "queries, keys) is read for the first head, and used for all of them. A program that is right but for this "
        "mistake gives your numbers in all 15 calls."
    ),
    "blockwise-nothing-rescaled": (
        "With 4 queries and 5 keys in blocks of 2, your answer at [0, 1, 0, 6] is -0.7261; it should be -1.536."
    ),
    "decoding-positions-restart": (
        "In pieces of 3, 1 and 1 tokens, your answer at [4, 13] is 7.908; it should be -5.001. Every call counts its "
        "tokens from 0, whatever the cache holds. A program that is right but for this mistake gives your numbers in "
        "all 16 calls."
    ),
}


@pytest.mark.parametrize("id", READ)
def test_what_a_student_reads(id):
    adapter, examine = next(iter(load_room(CATALOGUE[id].problem).examinations.items()))
    found, *_ = examine(CATALOGUE[id].adapters[adapter])
    both = f"{found.measured} {found.means}"
    assert READ[id] in (found.measured, found.means, both, f"{both} {found.question}")
