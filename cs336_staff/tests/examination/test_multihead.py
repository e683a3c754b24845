"""What the examination of causal multi-head self-attention finds, without RoPE and with it."""

import math
from functools import partial
from itertools import pairwise

import pytest
import torch

from cs336_kit.problems.multihead_self_attention import ROOM
from cs336_kit.problems.multihead_self_attention.examination import examine_multihead, examine_multihead_with_rope
from cs336_staff.authoring.programs import CATALOGUE, build_submission, expected_findings, wrong_submission

ADAPTER = "run_multihead_self_attention"
EXPECTED = expected_findings()[f"{ADAPTER}_with_rope"]
multihead, multihead_with_rope = build_submission()[ADAPTER], build_submission()[f"{ADAPTER}_with_rope"]


def found(run) -> list[str]:
    return [finding.id for finding in examine_multihead(run)]


def test_a_mask_of_finite_numbers_is_allowed():
    assert found(partial(multihead, hide=lambda S, mask, softmax: softmax(S.masked_fill(~mask, -1e9)))) == []


def hide_zeros(S, mask, softmax):
    lower = S.tril()
    return softmax(lower.masked_fill(lower == 0, -math.inf))


@pytest.mark.parametrize(
    ("parts", "id"),
    [
        ({"softmax": lambda S: S.exp() / S.exp().sum(-1, keepdim=True)}, "multihead-softmax-no-maximum"),
        ({"hide": hide_zeros}, "multihead-zero-scores"),
        ({"softmax": lambda S: S.softmax(-2)}, "multihead-softmax-over-queries"),
        ({"hide": lambda S, mask, softmax: softmax(S) * mask}, "multihead-mask-after-softmax"),
        ({"projections": lambda Q, K, V, num_heads: (Q.flip(0), K, V)}, "multihead-wrong"),
        ({"projections": lambda Q, K, V, num_heads: (Q, K, V.flip(0))}, "multihead-single-token"),
    ],
)
def test_what_nobody_stored(parts, id):
    assert found(partial(multihead, **parts)) == [id]


def test_a_mask_of_the_size_of_a_head():
    def allowed(positions, Q, K):
        return torch.ones(4, 4, dtype=torch.bool).tril()

    finding, single = examine_multihead(partial(multihead, allowed=allowed))
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


# The last mistake in each step, beside that of the next one; one head hides what is wrong between several.
LAST = {step: id for id in EXPECTED for step in CATALOGUE[id].parts if id != "multihead-one-head"}


@pytest.mark.parametrize(("first", "second"), [*pairwise(LAST.values())])
def test_two_mistakes_are_two_findings(first, second):
    both = partial(multihead, **CATALOGUE[first].parts, **CATALOGUE[second].parts)
    assert set(found_with_rope(both)) == {*EXPECTED[first], *EXPECTED[second]}


def found_with_rope(run) -> list[str]:
    return [finding.id for finding in examine_multihead_with_rope(run)]


# The same in other orders of q and k, and angles that start at 1, leave every score as it is.
@pytest.mark.parametrize("id", ["rope-from-one", "rope-concatenated", "rope-swapped"])
def test_what_scores_cannot_show_is_no_finding(id):
    assert found_with_rope(wrong_submission(id)[f"{ADAPTER}_with_rope"]) == []


@pytest.mark.parametrize("examine", [examine_multihead, examine_multihead_with_rope])
@pytest.mark.parametrize("id", ["softmax-sign", "softmax-shift-mean", "attention-mask-nan"])
def test_a_wrong_attention_is_not_taken_for_other_heads_or_another_mask(examine, id):
    """Right on a wrong attention, where what that does is not in the table: nothing but measurements is said."""
    adapter = next(adapter for adapter, each in ROOM.examinations.items() if each is examine)
    findings = examine(CATALOGUE[id].adapters[adapter])
    assert findings
    assert not [finding.id for finding in findings if finding.means]


def test_theta_is_not_called_unused_where_no_angle_makes_a_difference():
    findings = found_with_rope(lambda in_features, **inputs: 2 * in_features)
    assert findings == ["multihead-rope-single-token", "multihead-rope-mask", "multihead-rope-gradient-cut"]


def test_only_differences_of_positions_count():
    def turned(x, positions, theta, max_seq_len):
        return x * ((1 + positions) ** (1 / theta)).unsqueeze(-1)

    [found] = examine_multihead_with_rope(partial(multihead_with_rope, rotate=turned))
    assert found.id == "multihead-rope-positions"
    assert found.measured.startswith("When every position is 3 larger, your answers change by up to ")


def test_sizes_that_are_equal_do_not_make_a_cause():
    """A mask of three tokens fits three heads, too: what is said of them is so for other sizes."""

    def allowed(positions, Q, K):
        return torch.ones(3, 1, Q.shape[-2], dtype=torch.bool).tril()

    findings = examine_multihead(partial(multihead, allowed=allowed))
    assert findings
    assert not [finding.id for finding in findings if finding.program]
