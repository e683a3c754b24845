"""What is said of a program with two mistakes of the catalogue."""

from dataclasses import replace
from functools import partial
from itertools import product

import pytest

from cs336_kit.engine.room import load_room
from cs336_kit.problems.blockwise_attention.examination import examine_blockwise
from cs336_kit.problems.blockwise_attention.program import TABLE as IN_BLOCKS
from cs336_kit.problems.scaled_dot_product_attention.examination import examine_attention
from cs336_staff.authoring.programs import CATALOGUE, expected_findings, put_together

ATTENTION = "run_scaled_dot_product_attention"
EXPECTED = expected_findings()

MASKS = ("mask-inverted", "mask-transposed", "mask-added", "mask-zero")
PAIRS = [
    *product(("scale-missing", "scale-by-d_k", "scale-constant", "scores-transposed"), MASKS),
    *product(("softmax-over-queries", "softmax-dim-1"), MASKS),
]
PAIRS_IN_BLOCKS = [
    *product(
        ("sum-not-rescaled", "values-not-rescaled"),
        ("scale-missing", "mask-inverted", "mask-fill-lowest", "mask-of-first-keys"),
    ),
    *product(("hidden-block-nan",), ("scale-missing", "mask-inverted")),
]


@pytest.mark.parametrize(("first", "second"), PAIRS_IN_BLOCKS)
def test_both_are_found_in_blocks(first, second):
    step = {change.id: change for change in IN_BLOCKS.changes}
    found = examine_blockwise(partial(IN_BLOCKS.call, [step[first], step[second]]))
    assert {first, second} <= {each.id.partition("-")[2] for each in found}


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_both_are_found(first, second):
    first, second = f"attention-{first}", f"attention-{second}"
    one, other = CATALOGUE[first], CATALOGUE[second]
    assert not one.parts.keys() & other.parts.keys()
    both = put_together([replace(one, parts={**one.parts, **other.parts})])
    [(adapter, examine)] = load_room(one.problem).examinations.items()
    found = {each.id for each in examine(both[adapter])}
    assert {*EXPECTED[adapter][first], *EXPECTED[adapter][second]} <= found


def findings_of_pair(softmax, attention):
    both = put_together([CATALOGUE[softmax], CATALOGUE[attention]])
    return [found.id for found in examine_attention(both[ATTENTION])]


@pytest.mark.parametrize(
    ("softmax", "attention", "found"),
    [
        ("softmax-shift-mean", "attention-mask-inverted", "attention-mask-inverted"),
        ("softmax-shift-minimum", "attention-mask-transposed", "attention-mask-transposed"),
        ("softmax-sigmoid", "attention-mask-transposed", "attention-mask-transposed"),
        ("softmax-in-place", "attention-scale-missing", "attention-scale-missing"),
    ],
)
def test_a_wrong_softmax_does_not_hide_another_mistake(softmax, attention, found):
    assert found in findings_of_pair(softmax, attention)


def test_a_logarithm_of_softmax_is_not_taken_for_an_inverted_mask():
    assert "attention-mask-inverted" not in findings_of_pair("softmax-log", "attention-mask-transposed")
