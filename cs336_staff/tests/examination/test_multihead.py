"""What the examination of causal multi-head self-attention finds, without RoPE and with it."""

import math
from functools import partial
from itertools import combinations

import pytest
import torch

from cs336_kit.problems.multihead_self_attention import ROOM
from cs336_kit.problems.multihead_self_attention.examination import examine_multihead, examine_multihead_with_rope
from cs336_staff.authoring.programs import CATALOGUE, expected_findings, wrong_submission
from cs336_staff.problems.multihead_self_attention.programs import multihead
from cs336_staff.problems.scaled_dot_product_attention.programs import attention

ADAPTER = "run_multihead_self_attention"
EXPECTED, WITH_ROPE = (expected_findings()[each] for each in (ADAPTER, f"{ADAPTER}_with_rope"))


def found(run) -> list[str]:
    return [finding.id for finding in examine_multihead(run)]


def test_a_mask_of_finite_numbers_is_allowed():
    hide = partial(attention, hide=lambda scores, mask: scores.masked_fill(~mask, -1e9))
    assert found(partial(multihead, attention=hide)) == []


def unstable(scores, dim):
    return scores.exp() / scores.exp().sum(dim, keepdim=True)


def zeroed_afterwards(Q, K, V, mask):
    return CATALOGUE["attention-mask-after-softmax"].adapters["run_scaled_dot_product_attention"](Q, K, V, mask)


def hide_zeros(scores, mask):
    lower = scores.tril()
    return lower.masked_fill(lower == 0, -math.inf)


@pytest.mark.parametrize(
    ("parts", "id"),
    [
        ({"attention": partial(attention, softmax=unstable)}, "multihead-softmax-no-maximum"),
        ({"attention": partial(attention, hide=hide_zeros)}, "multihead-zero-scores"),
        (
            {"attention": partial(attention, softmax=lambda scores, dim: scores.softmax(-2))},
            "multihead-softmax-over-queries",
        ),
        ({"attention": zeroed_afterwards}, "multihead-mask-after-softmax"),
        ({"weights": lambda Q, K, V, num_heads: (V, K, Q)}, "multihead-queries-values-swapped"),
        ({"weights": lambda Q, K, V, num_heads: (Q, Q, V)}, "multihead-keys-by-q"),
        ({"weights": lambda Q, K, V, num_heads: (Q, K, K)}, "multihead-values-by-k"),
        ({"weights": lambda Q, K, V, num_heads: (Q.flip(0), K, V)}, "multihead-groups"),
        ({"weights": lambda Q, K, V, num_heads: (Q, K.T, V)}, "multihead-keys-transposed"),
        ({"weights": lambda Q, K, V, num_heads: (Q.T, K.T, V)}, "multihead-scores-transposed"),
        ({"weights": lambda Q, K, V, num_heads: (Q, K, V.flip(0))}, "multihead-single-token"),
        ({"mask": lambda length: torch.eye(length, dtype=torch.bool)}, "multihead-mask-diagonal"),
        ({"merge": lambda x: x.mT.reshape(*x.shape[:-3], x.shape[-2], -1)}, "multihead-join-transposed"),
    ],
)
def test_what_nobody_stored(parts, id):
    assert found(partial(multihead, **parts)) == [id]


def test_a_mask_of_the_size_of_a_head():
    def mask(length):
        return torch.ones(4, 4, dtype=torch.bool).tril()

    finding, single = examine_multihead(partial(multihead, mask=mask))
    assert finding.id == "multihead-fails-unless-4-tokens"
    assert finding.measured.startswith("Your function fails for 5 tokens and 3 heads of length 4: `RuntimeError")
    assert finding.measured.endswith("The same call for 4 tokens works.")
    assert single.id == "multihead-fails-one-token"


def test_sequences_that_see_each_other():
    def run(in_features, **rest):
        return multihead(in_features=in_features.reshape(-1, in_features.shape[-1]), **rest).reshape(in_features.shape)

    (finding,) = examine_multihead(run)
    assert finding.id == "multihead-batch"
    assert finding.means.startswith("All sequences of a batch are one: each sees those before it.")


def test_values_that_are_cut_from_the_graph():
    (finding,) = examine_multihead(
        lambda **arguments: multihead(**arguments | {"v_proj_weight": arguments["v_proj_weight"].data})
    )
    assert finding.id == "multihead-gradient-cut"
    assert finding.measured == "v_proj_weight gets no gradient."


def parts_of(id: str) -> dict:
    return dict(CATALOGUE[id].parts)


# Heads that are not split cannot be joined in a wrong order, and are as long as the model is wide.
HIDDEN = {
    frozenset(("multihead-not-split", other))
    for other in ("multihead-merge-by-view", "multihead-merge-inner", "multihead-scaled-by-d_model")
}
PAIRS = [
    pair
    for pair in combinations([id for id in EXPECTED if EXPECTED[id]], 2)
    if not parts_of(pair[0]).keys() & parts_of(pair[1]).keys() and frozenset(pair) not in HIDDEN
]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_two_mistakes_are_two_findings(first, second):
    both = partial(multihead, **parts_of(first), **parts_of(second))
    assert set(found(both)) == {*EXPECTED[first], *EXPECTED[second]}


def test_most_pairs_are_found():
    assert len(PAIRS) > 100


def test_what_a_student_reads():
    (finding,) = examine_multihead(wrong_submission("multihead-no-mask")[ADAPTER])
    assert finding.measured == "For five tokens, your answer at [0, 3] is -3.303; it should be 6.446."
    assert finding.means == (
        "No token is hidden from any other: there is no causal mask in effect. A program that is right but for this "
        "mistake gives your numbers in all 10 calls."
    )


def found_with_rope(run) -> list[str]:
    return [finding.id for finding in examine_multihead_with_rope(run)]


# The same in other orders of q and k, and angles that start at 1, leave every score as it is.
@pytest.mark.parametrize("id", ["rope-from-one", "rope-not-interleaved", "rope-pairs-swapped"])
def test_what_scores_cannot_show_is_no_finding(id):
    assert found_with_rope(wrong_submission(id)[f"{ADAPTER}_with_rope"]) == []


@pytest.mark.parametrize(
    ("id", "finding"),
    [
        ("rope-half-split", "multihead-rope-pairs-halves"),
        ("rope-no-minus", "multihead-rope-positions"),
        ("rope-exponent-i", "multihead-rope-exponent-half"),
        ("rope-exponent-4i", "multihead-rope-wrong"),
        ("rope-one-angle", "multihead-rope-one-angle"),
        ("rope-direction", "multihead-rope-direction"),
        ("rope-theta-ignored", "multihead-rope-theta-ignored"),
        ("rope-positions-of-first-batch", "multihead-rope-first-sequence"),
        ("rope-skipped", "multihead-rope-missing"),
    ],
)
def test_a_wrong_rope_shows_in_the_scores(id, finding):
    assert found_with_rope(wrong_submission(id)[f"{ADAPTER}_with_rope"]) == [finding]


ROPE_PAIRS = [
    (first, second)
    for first in (id for id in EXPECTED if not EXPECTED[id] and CATALOGUE[id].parts)  # right without RoPE
    for second in (
        "multihead-no-mask",
        "multihead-scaled-by-d_model",
        "multihead-merge-inner",
        "multihead-qkv-by-row",
        "multihead-keys-values-swapped",
        "multihead-output-transposed",
    )
]


@pytest.mark.parametrize(("first", "second"), sorted(ROPE_PAIRS))
def test_two_mistakes_are_two_findings_with_rope(first, second):
    both = partial(multihead, **parts_of(first), **parts_of(second))
    assert {*found_with_rope(both)} == {*WITH_ROPE[first], *WITH_ROPE[second]}


@pytest.mark.parametrize("examine", [examine_multihead, examine_multihead_with_rope])
@pytest.mark.parametrize("id", ["softmax-sign", "softmax-mean-subtracted", "attention-mask-nan"])
def test_a_wrong_attention_is_not_taken_for_other_heads_or_another_mask(examine, id):
    """Right on a wrong attention, where what that does is not in the table: nothing but measurements is said."""
    adapter = next(adapter for adapter, each in ROOM.examinations.items() if each is examine)
    findings = examine(CATALOGUE[id].adapters[adapter])
    assert findings
    assert not [finding.id for finding in findings if finding.means]


def test_sizes_that_are_equal_do_not_make_a_cause():
    """A mask of three tokens fits three heads, too: what is said of them is so for other sizes."""

    def mask(length):
        return torch.ones(3, 1, length, dtype=torch.bool).tril()

    findings = examine_multihead(partial(multihead, mask=mask))
    assert findings
    assert not [finding.id for finding in findings if finding.program]
