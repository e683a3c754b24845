"""What is said of programs with two mistakes, and of those that once made the examination say something untrue."""

import pytest

from cs336_kit.examination.attention import examine_attention
from cs336_kit.examination.blockwise import examine_blockwise
from cs336_kit.examination.linear import examine_linear
from cs336_kit.examination.multihead import examine_multihead_with_rope
from cs336_staff.authoring.misconceptions import CATALOGUE
from cs336_staff.authoring.misconceptions.entry import ATTENTION, together
from cs336_staff.tests.examination.blind import blind

MULTIHEAD_WITH_ROPE = "run_multihead_self_attention_with_rope"


def findings_of_pair(softmax, attention):
    both = together(CATALOGUE[softmax], CATALOGUE[attention])
    assert both
    return [found.id for found in examine_attention(both.adapters[ATTENTION])]


@pytest.mark.parametrize(
    ("softmax", "attention", "found"),
    [
        ("softmax-mean-subtracted", "attention-mask-inverted", "attention-mask-inverted"),
        ("softmax-minimum-subtracted", "attention-mask-transposed", "attention-mask-transposed"),
        ("softmax-float64-out", "attention-fill-0", "attention-mask-zero"),
        ("softmax-sigmoid", "attention-mask-transposed", "attention-mask-transposed"),
        ("softmax-in-place", "attention-no-scale", "attention-scale-missing"),
    ],
)
def test_a_wrong_softmax_does_not_hide_another_mistake(softmax, attention, found):
    assert found in findings_of_pair(softmax, attention)


def test_a_logarithm_of_softmax_is_not_taken_for_an_inverted_mask():
    assert "attention-mask-inverted" not in findings_of_pair("softmax-log", "attention-mask-transposed")


@pytest.mark.parametrize(
    ("softmax", "found"),
    [("softmax-no-keepdim", "attention-divisor-of-another"), ("softmax-sigmoid", "attention-sigmoid")],
)
def test_what_the_weights_are_divided_by(softmax, found):
    assert found in [each.id for each in examine_attention(CATALOGUE[softmax].adapters[ATTENTION])]


@pytest.mark.parametrize("attention", ["attention-cosine", "attention-no-scale"])
def test_one_sum_for_all_is_neither_a_sigmoid_nor_another_ones_sum(attention):
    found = findings_of_pair("softmax-all-dims", attention)
    assert "attention-weights-sum" in found
    assert not {"attention-sigmoid", "attention-divisor-of-another"} & set(found)


@pytest.mark.parametrize(
    ("program", "adapter", "examine", "found"),
    [
        ("c-attention-bias-remembered", ATTENTION, examine_attention, "attention-mask-unsteady"),
        ("c-linear-clamped", "run_linear", examine_linear, "linear-clamped"),
        ("c-blockwise-break", "run_blockwise_attention", examine_blockwise, "blockwise-hidden-block-zeros"),
        (
            "c-mha-position-mask-dmodel-scale",
            MULTIHEAD_WITH_ROPE,
            examine_multihead_with_rope,
            "multihead-mask-by-position",
        ),
    ],
)
def test_blind_programs_of_which_something_untrue_was_said(program, adapter, examine, found):
    ids = [each.id for each in examine(blind(program, adapter, "third"))]
    assert found in ids
    assert "multihead-rope-on-values" not in ids
