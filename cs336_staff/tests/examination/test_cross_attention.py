"""What the examination of attention between two sequences finds."""

from functools import partial

import pytest

from cs336_kit.problems.multihead_attention.examination import examine_cross_attention
from cs336_staff.authoring.programs import CATALOGUE, build_submission

multihead = build_submission()["run_multihead_attention"]


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
