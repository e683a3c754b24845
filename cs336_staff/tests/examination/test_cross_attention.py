"""What the examination of attention between two sequences finds."""

from functools import partial

import pytest

from cs336_kit.problems.multihead_attention.examination import examine_cross_attention
from cs336_staff.authoring.programs import CATALOGUE, build_submission, wrong_submission

ADAPTER = "run_multihead_attention"
multihead = build_submission()[ADAPTER]


def found(run) -> list[str]:
    return [finding.id for finding in examine_cross_attention(run)]


def ignored(mask, Q, K):
    return None


NAN_FOR_NOTHING = {"empty": lambda W, mask: W}


@pytest.mark.parametrize(
    ("parts", "ids"),
    [
        (NAN_FOR_NOTHING, ["cross-nothing-nan"]),
        ({"hide": lambda S, mask, softmax: softmax(S.masked_fill(~mask, -1e9))}, ["cross-nothing-mean"]),
        # Two mistakes.
        (
            dict(CATALOGUE["cross-heads-averaged"].parts, allowed=ignored),
            ["cross-heads-averaged", "cross-masks-ignored"],
        ),
        (
            NAN_FOR_NOTHING | {"projections": lambda q, k, v, heads: (q, v, k)},
            ["cross-keys-values-swapped", "cross-nothing-nan"],
        ),
        (
            {"projections": lambda q, k, v, heads: (q.T, k, v), "allowed": ignored},
            ["cross-queries-transposed", "cross-masks-ignored"],
        ),
    ],
)
def test_what_nobody_stored(parts, ids):
    assert found(partial(multihead, **parts)) == ids


def test_a_batch_that_is_required_hides_no_other_mistake():
    scaled_by_d_model = partial(multihead, **CATALOGUE["cross-scale-by-root-d_model"].parts)

    def run(query, **rest):
        batch, queries, d_model = query.shape
        return scaled_by_d_model(query=query.reshape(batch, queries, d_model), **rest)

    assert found(run) == ["cross-fails-2d", "cross-scale-by-root-d_model"]


def test_what_a_student_reads():
    (finding,) = examine_cross_attention(wrong_submission("cross-head-mask-of-first-head")[ADAPTER])
    assert finding.measured == "With a mask for each head, your answer at [0, 3, 0] is -8.949; it should be -0.1504."
    assert finding.means == (
        "A mask (batch, heads, queries, keys) is read for the first head, and used for all of them. A program that "
        "is right but for this mistake gives your numbers in all 15 calls."
    )
