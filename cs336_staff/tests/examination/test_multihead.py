"""What the examination of causal multi-head self-attention finds, without RoPE and with it."""

import math
from functools import partial
from itertools import combinations

import pytest
import torch

from cs336_kit.examination.multihead import examine_multihead, examine_multihead_with_rope
from cs336_staff.authoring.misconceptions import CATALOGUE
from cs336_staff.authoring.parts import attention, multihead
from cs336_staff.release.verify import expected_findings, submission

ADAPTER = "run_multihead_self_attention"
EXPECTED, WITH_ROPE = (expected_findings()[each] for each in (ADAPTER, f"{ADAPTER}_with_rope"))


def found(run) -> list[str]:
    return [finding.id for finding in examine_multihead(run)]


def in_a_loop(num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, **sizes):
    """Head by head, with the scale split in two and exponentials of base 2: right."""
    answers = []
    d_head = q_proj_weight.shape[0] // num_heads
    for h in range(num_heads):
        rows = slice(h * d_head, (h + 1) * d_head)
        q, k, v = (in_features @ W[rows].T for W in (q_proj_weight, k_proj_weight, v_proj_weight))
        scores = (q * d_head**-0.25) @ (k * d_head**-0.25).mT * math.log2(math.e)
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1) > 0, -1e9)
        weights = torch.exp2(scores - scores.amax(-1, keepdim=True))
        answers.append(weights / weights.sum(-1, keepdim=True) @ v)
    return torch.cat(answers, -1) @ o_proj_weight.T


def test_what_is_allowed_gets_none():
    assert found(in_a_loop) == []


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
        ({"attention": partial(attention, score=lambda Q, K: Q @ K.mT)}, "multihead-scale"),
        ({"attention": partial(attention, softmax=unstable)}, "multihead-overflow"),
        ({"attention": partial(attention, hide=hide_zeros)}, "multihead-zero-scores"),
        (
            {"attention": partial(attention, softmax=lambda scores, dim: scores.softmax(-2))},
            "multihead-softmax-over-queries",
        ),
        (
            {"attention": zeroed_afterwards},
            "multihead-mask-after-softmax",
        ),
        ({"weights": lambda Q, K, V, num_heads: (V, K, Q)}, "multihead-values-by-q"),
        ({"weights": lambda Q, K, V, num_heads: (Q, Q, V)}, "multihead-keys-by-q"),
        ({"weights": lambda Q, K, V, num_heads: (Q, K, K)}, "multihead-values-by-k"),
        ({"weights": lambda Q, K, V, num_heads: (Q.flip(0), K, V)}, "multihead-groups"),
        ({"weights": lambda Q, K, V, num_heads: (Q, K.T, V)}, "multihead-keys-transposed"),
        ({"weights": lambda Q, K, V, num_heads: (Q.T, K.T, V)}, "multihead-scores-transposed"),
        ({"weights": lambda Q, K, V, num_heads: (Q, K, V.flip(0))}, "multihead-values-order"),
        ({"mask": lambda length: torch.eye(length, dtype=torch.bool)}, "multihead-mask"),
        ({"merge": lambda x: x.mT.reshape(*x.shape[:-3], x.shape[-2], -1)}, "multihead-mixed"),
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
    assert finding.measured.startswith(
        "In a batch of 3, the answers to the sequences differ by up to (0, 7.394, 12.34)"
    )


def test_values_that_are_cut_from_the_graph():
    (finding,) = examine_multihead(
        lambda **arguments: multihead(**arguments | {"v_proj_weight": arguments["v_proj_weight"].data})
    )
    assert finding.id == "multihead-gradient-cut"
    assert finding.measured == "v_proj_weight gets no gradient."


def parts_of(id: str) -> dict:
    wrong = CATALOGUE[id].adapters[ADAPTER]
    assert isinstance(wrong, partial)
    return wrong.keywords


WEIGHTS = (
    "multihead-qkv-by-head",
    "multihead-qkv-by-row",
    "multihead-queries-keys-swapped",
    "multihead-keys-values-swapped",
    "multihead-no-output-projection",
    "multihead-output-transposed",
    "multihead-qkv-transposed",
)
# Pairs in which one mistake leaves nothing of the other, or hides it: heads that are not split cannot be joined in a
# wrong order, and scores that are not those of tokens have no scale.
HIDDEN = {
    frozenset(pair)
    for pair in (
        ("multihead-heads-inner", "multihead-merge-inner"),
        ("multihead-not-split", "multihead-merge-by-view"),
        ("multihead-not-split", "multihead-merge-inner"),
        ("multihead-not-split", "multihead-scaled-by-d_model"),
        ("multihead-split-by-view", "multihead-scaled-by-d_model"),
        ("multihead-split-by-view", "multihead-queries-keys-swapped"),
        *(
            ("multihead-heads-before-sequence", other)
            for other in (
                "multihead-scaled-by-d_model",
                *WEIGHTS,
            )
        ),
    )
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
    assert len(HIDDEN) < 0.12 * len(PAIRS)


def test_what_a_student_reads():
    (finding,) = examine_multihead(submission("multihead-no-mask")[ADAPTER])
    assert finding.measured == "In a sequence of 5, token 1 sees tokens 0, 1, 2, 3 and 4; it should see tokens 0 and 1."
    (finding,) = examine_multihead(submission("multihead-scaled-by-d_model")[ADAPTER])
    assert finding.measured == (
        "With d_model = 12 and 3 heads, your scores are q · k times 0.2887; the factor should be 1/√d_head = 0.5."
    )
    assert finding.means == "That is 1/√d_model."
    (finding,) = examine_multihead(submission("multihead-split-by-view")[ADAPTER])
    assert finding.measured == (
        "With all scores equal and W_V = W_O = 1, component 1 of the answer to token 1 contains component 5 of token "
        "0; it should contain component 1 of the tokens, and no other."
    )
    (finding,) = examine_multihead(submission("multihead-keys-values-swapped")[ADAPTER])
    assert finding.measured == "Component 0 of the value is made by row 0 of W_K; it should be made by row 0 of W_V."


def found_with_rope(run) -> list[str]:
    return [finding.id for finding in examine_multihead_with_rope(run)]


# The same in other orders of q and k, and angles that start at 1, leave every score as it is.
@pytest.mark.parametrize("id", ["rope-from-one", "rope-not-interleaved", "rope-pairs-swapped", "rope-half-tables"])
def test_what_scores_cannot_show_is_no_finding(id):
    assert found_with_rope(submission(id)[f"{ADAPTER}_with_rope"]) == []


@pytest.mark.parametrize(
    ("id", "finding"),
    [
        ("rope-half-split", "multihead-rope-pairs-halves"),
        ("rope-no-minus", "multihead-rope-no-minus"),
        ("rope-exponent-i", "multihead-rope-exponent-half"),
        ("rope-exponent-4i", "multihead-rope-exponent"),
        ("rope-one-angle", "multihead-rope-one-angle"),
        ("rope-direction", "multihead-rope-direction"),
        ("rope-theta-ignored", "multihead-rope-theta-ignored"),
        ("rope-positions-of-first-batch", "multihead-rope-first-sequence"),
        ("rope-skipped", "multihead-rope-missing"),
    ],
)
def test_a_wrong_rope_shows_in_the_scores(id, finding):
    assert found_with_rope(submission(id)[f"{ADAPTER}_with_rope"]) == [finding]


ROPE_PAIRS = [
    (first, second)
    for first in (id for id in EXPECTED if not EXPECTED[id])  # right without RoPE
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
    if first in ("multihead-rope-along-heads", "multihead-positions-ignored"):  # whose scores cannot be compared
        assert {*found_with_rope(both)} >= {*WITH_ROPE[first]} - {"multihead-rope-missing"}
    else:
        assert {*found_with_rope(both)} == {*WITH_ROPE[first], *WITH_ROPE[second]}


def test_what_a_student_reads_about_rope():
    (finding,) = examine_multihead_with_rope(submission("multihead-rope-over-d_model")[f"{ADAPTER}_with_rope"])
    assert finding.measured == (
        "At position 1 the pairs of head 0 turn by (1, 0.7937), those of head 1 by (0.63, 0.5); both should turn by "
        "(1, 0.5)."
    )
    (finding,) = examine_multihead_with_rope(submission("multihead-rope-on-queries-only")[f"{ADAPTER}_with_rope"])
    assert finding.means == "You turn the queries and not the keys."
    assert finding.section == "6 Multi-head self-attention"
