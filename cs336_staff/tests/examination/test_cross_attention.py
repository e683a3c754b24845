"""What the examination of attention between two sequences finds."""

import pytest
import torch

from cs336_kit.problems.multihead_attention.examination import examine_cross_attention
from cs336_staff.authoring.programs import wrong_submission
from cs336_staff.problems.linear.programs import linear
from cs336_staff.problems.multihead_attention.mistakes import averaged_over_heads
from cs336_staff.problems.multihead_attention.programs import for_heads, multihead_of_two
from cs336_staff.problems.scaled_dot_product_attention.programs import attention

ADAPTER = "run_multihead_attention"


def found(run) -> list[str]:
    return [finding.id for finding in examine_cross_attention(run)]


def wrong(attention=attention, mask=for_heads, weights=lambda q, k, v: (q, k, v), sequences=lambda q, k, v: (q, k, v)):
    def run(q_proj_weight, k_proj_weight, v_proj_weight, query, key, value, **rest):
        q, k, v = weights(q_proj_weight, k_proj_weight, v_proj_weight)
        return multihead_of_two(
            attention,
            linear,
            q_proj_weight=q,
            k_proj_weight=k,
            v_proj_weight=v,
            **dict(zip(("query", "key", "value"), sequences(query, key, value), strict=True)),
            **rest,
            for_heads=mask,
        )

    return run


def scaled_by_d_model(Q, K, V, mask):
    return attention(Q / Q.shape[-3] ** 0.5, K, V, mask)


def nan_for_nothing(Q, K, V, mask):
    scores = Q @ K.mT / Q.shape[-1] ** 0.5
    return (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(-1) @ V


def equal_weights_for_nothing(Q, K, V, mask):
    scores = Q @ K.mT / Q.shape[-1] ** 0.5
    return (scores if mask is None else scores.masked_fill(~mask, -1e9)).softmax(-1) @ V


def ignored(mask, query):
    return None


def first_sequence(mask, query):
    return for_heads(mask, query)[:1]


@pytest.mark.parametrize(
    ("parts", "ids"),
    [
        ({"attention": nan_for_nothing}, ["cross-nothing-nan"]),
        ({"attention": equal_weights_for_nothing}, ["cross-nothing-mean"]),
        ({"weights": lambda q, k, v: (k, q, v)}, ["cross-queries-keys-swapped"]),
        ({"sequences": lambda q, k, v: (q, v, v)}, ["cross-keys-from-value"]),
        ({"mask": first_sequence}, ["cross-masks-of-first-sequence"]),
        # Two mistakes.
        ({"attention": averaged_over_heads, "mask": ignored}, ["cross-heads-averaged", "cross-masks-ignored"]),
        (
            {"attention": nan_for_nothing, "weights": lambda q, k, v: (q, v, k)},
            ["cross-keys-values-swapped", "cross-nothing-nan"],
        ),
        (
            {"weights": lambda q, k, v: (q.T, k, v), "mask": ignored},
            ["cross-queries-transposed", "cross-masks-ignored"],
        ),
    ],
)
def test_what_nobody_stored(parts, ids):
    assert found(wrong(**parts)) == ids


def test_a_batch_that_is_required_hides_no_other_mistake():
    def run(query, **rest):
        batch, queries, d_model = query.shape
        return wrong(attention=scaled_by_d_model)(query=query.reshape(batch, queries, d_model), **rest)

    assert found(run) == ["cross-fails-2d", "cross-scale-by-root-d_model"]


def test_what_a_student_reads():
    (finding,) = examine_cross_attention(wrong_submission("cross-mask-of-first-head")[ADAPTER])
    assert finding.measured == "With a mask for each head, your answer at [0, 3, 0] is -8.949; it should be -0.1504."
    assert finding.means == (
        "A mask (batch, heads, queries, keys) is read for the first head, and used for all of them. A program that "
        "is right but for this mistake gives your numbers in all 15 calls."
    )
