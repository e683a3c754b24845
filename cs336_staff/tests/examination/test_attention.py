"""What the examination says of attention: of every known mistake, of right ones, and of two mistakes at once."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from cs336_kit.examination.attention import examine_attention
from cs336_kit.examination.attention_calls import has_mask, hides_all
from cs336_staff.authoring import parts
from cs336_staff.release.verify import submission
from cs336_staff.tests.examination.blind import blind

ADAPTER = "run_scaled_dot_product_attention"


def ids(run) -> list[str]:
    return [found.id for found in examine_attention(run)]


def text(run, id: str) -> str:
    (found,) = (f for f in examine_attention(run) if f.id == id)
    return " ".join((found.measured, found.means, found.question))


def wide(*tensors: Tensor) -> list[Tensor]:
    return [x.float() if x.dtype.itemsize == 2 else x for x in tensors]


def lowest_and_zeroed(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    """The lowest number there is, and weights of 0 put in afterwards: no score can be as low."""
    q, k, v = wide(Q, K, V)
    scores = q @ k.mT / math.sqrt(Q.shape[-1])
    if mask is None:
        return (torch.softmax(scores, -1) @ v).to(Q.dtype)
    weights = torch.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), -1)
    return (weights.masked_fill(~mask, 0.0) @ v).to(Q.dtype)


def scale_in_two_parts(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    q, k, v = wide(Q, K, V)
    scores = (q * Q.shape[-1] ** -0.25) @ (k * Q.shape[-1] ** -0.25).mT
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    largest = scores.amax(-1, keepdim=True)
    e = torch.exp2((scores - largest.masked_fill(largest.isinf(), 0.0)) / math.log(2))
    weights = e / e.sum(-1, keepdim=True).clamp_min(torch.finfo(e.dtype).tiny)
    total = weights.sum(-1, keepdim=True)
    return (weights / total.masked_fill(total == 0, 1.0) @ v).to(Q.dtype)


def loops(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    if Q.ndim > 2:
        batch = torch.broadcast_shapes(Q.shape[:-2], K.shape[:-2], () if mask is None else mask.shape[:-2])
        Q, K, V = (x.expand(*batch, *x.shape[-2:]) for x in (Q, K, V))
        masks = [None] * len(Q) if mask is None else mask.expand(*batch, *mask.shape[-2:])
        return torch.stack([loops(*each) for each in zip(Q, K, V, masks, strict=True)])
    return lowest_and_zeroed(Q, K, V, mask)


@pytest.mark.parametrize("run", [lowest_and_zeroed, scale_in_two_parts, loops])
def test_what_is_just_allowed_has_none(run):
    assert ids(run) == []


def test_the_factor_is_this_functions():
    run = submission("attention-by-8")[ADAPTER]
    assert text(run, "attention-scale-constant").startswith(
        "Your scores are Q Kᵀ times 0.125 for d_k = 7 (1/√d_k is 0.378) and Q Kᵀ times 0.125 for d_k = 10 (1/√d_k is "
        "0.3162). You divide by 8 whatever d_k is."
    )


def test_the_axis_is_named_with_the_sums():
    assert text(submission("attention-softmax-over-queries")[ADAPTER], "attention-softmax-over-queries").startswith(
        "In three dimensions the weights sum to 1 over the queries and to 0.4225 … 1.526 over the keys; those of each "
        "query should sum to 1 over the keys. Your softmax runs over dim=-2."
    )


@pytest.mark.parametrize(("fill", "said"), [(-70.0, "-70"), (-3e4, "-30,000"), (-1e9, "-1e9"), (-1e30, "-1e30")])
def test_any_finite_fill_is_found_and_measured(fill, said):
    def run(Q, K, V, mask=None):
        return parts.attention(Q, K, V, mask, hide=lambda scores, mask: scores.masked_fill(~mask, fill))

    (found,) = (f for f in examine_attention(run) if f.id == "attention-mask-fill-finite")
    assert found.means == f"Hidden scores are replaced by about {said}, not by -inf."


def test_what_raises_is_quoted_beside_what_works():
    (found,) = examine_attention(submission("attention-mask-required")[ADAPTER])
    assert found.measured == (
        "Your function works for (batch, positions, d) with a mask and fails with mask=None and when no mask is "
        "passed: `TypeError: bad operand type for unary ~: 'NoneType'`."
    )
    assert isinstance(found.error, TypeError)


def test_a_finding_knows_which_cases_it_touches():
    class CaseOf:
        def __init__(self, mask):
            self.mask = mask

    some, none = torch.eye(2, dtype=torch.bool), torch.zeros(2, 2, dtype=torch.bool)
    assert [has_mask(CaseOf(m)) for m in (None, some)] == [False, True]  # type: ignore[arg-type]
    assert [hides_all(CaseOf(m)) for m in (None, some, none)] == [False, False, True]  # type: ignore[arg-type]
    (found,) = examine_attention(submission("attention-nan-for-nothing")[ADAPTER])
    assert [found.touches(CaseOf(m)) for m in (some, none)] == [False, True]  # type: ignore[arg-type]


# Stages of attention, and a mistake in each: (id of the finding, what takes the place of the right part).
SCORES = {
    "attention-scale-missing": lambda Q, K: Q @ K.mT,
    "attention-scale-by-d_k": lambda Q, K: Q @ K.mT / Q.shape[-1],
    "attention-scale-constant": lambda Q, K: Q @ K.mT / 8,
    "attention-scores-transposed": lambda Q, K: parts.scale(K, Q),
}
AXES = {
    "attention-softmax-over-queries": lambda x, dim: parts.softmax(x, -2),
    "attention-softmax-dim-1": lambda x, dim: parts.softmax(x, 1),
}
HIDING = {
    "attention-mask-inverted": lambda scores, mask: parts.hide(scores, ~mask),
    "attention-mask-transposed": lambda scores, mask: parts.hide(scores, mask.mT),
    "attention-mask-ignored": lambda scores, mask: scores,
    "attention-mask-bias": lambda scores, mask: scores + mask,
    "attention-mask-zero": lambda scores, mask: scores * mask,
    "attention-mask-fill-finite": lambda scores, mask: scores.masked_fill(~mask, -1e4),
}


@pytest.mark.parametrize("hiding", HIDING)
@pytest.mark.parametrize("wrong", SCORES | AXES)
def test_two_mistakes_are_both_found(wrong, hiding):
    if wrong in AXES and hiding == "attention-mask-fill-finite":
        pytest.skip("scores at chosen depths need a softmax over the keys")
    wrong_part = {"score": SCORES[wrong]} if wrong in SCORES else {"softmax": AXES[wrong]}
    assert {wrong, hiding} <= set(ids(partial(parts.attention, hide=HIDING[hiding], **wrong_part)))


def nan_for_nothing_and_a_mask_required(Q, K, V, mask: Any = None):
    return torch.softmax((Q @ K.mT / math.sqrt(Q.shape[-1])).masked_fill(mask.logical_not(), -math.inf), -1) @ V


def two_dimensions_without_a_scale(Q, K, V, mask=None):
    (queries, _), (keys, _) = Q.shape, K.shape
    mask = torch.ones(queries, keys, dtype=torch.bool) if mask is None else mask
    return torch.softmax((Q @ K.T).masked_fill(~mask, -math.inf), -1).nan_to_num() @ V


def swapped_and_ignored(Q, K, V, mask=None):
    return parts.attention(Q, V, K, None)


def dropout_with_an_inverted_mask(Q, K, V, mask=None):
    return parts.attention(
        Q, K, V, None if mask is None else ~mask, softmax=lambda x, dim: F.dropout(parts.softmax(x, dim), 0.1)
    )


@pytest.mark.parametrize(
    ("run", "both"),
    [
        (nan_for_nothing_and_a_mask_required, {"attention-fails-without-mask", "attention-nothing-nan"}),
        (two_dimensions_without_a_scale, {"attention-fails-unless-2d", "attention-scale-missing"}),
        (swapped_and_ignored, {"attention-keys-values-swapped", "attention-mask-ignored"}),
        (dropout_with_an_inverted_mask, {"attention-random", "attention-mask-inverted"}),
    ],
)
def test_two_mistakes_of_other_kinds_are_both_found(run, both):
    assert both <= set(ids(run))


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("attention-bert-mask-bias", ["attention-mask-bias-finite"]),
        ("attention-causal-by-default", ["attention-causal-without-mask"]),
        ("attention-diagonal-always-allowed", ["attention-mask-diagonal"]),
        ("attention-empty-row-nan-gradient", ["attention-nothing-gradient"]),
        ("attention-first-mask-for-all", ["attention-mask-of-first-sequence"]),
        ("attention-flat-batch-modulo", ["attention-broadcast"]),
        ("attention-lowest-float-fill", ["attention-nothing-mean"]),
        ("attention-mask-flipped-in-place", ["attention-in-place"]),
        ("attention-mask-multiplies-logits", ["attention-mask-zero"]),
        ("attention-renormalised-after-softmax", ["attention-mask-renormalised"]),
        ("attention-root-precedence", ["attention-scale-by-half-d_k"]),
        ("attention-scale-in-float32", ["attention-scale-rounded"]),
        ("attention-softmax-axis-two", ["attention-fails-2d", "attention-softmax-dim-2"]),
        ("attention-squeezed-answer", ["attention-shape-one-query"]),
        ("attention-value-index-typo", ["attention-values-summed"]),
        ("attention-width-from-axis-one", ["attention-scale-by-root-axis-1"]),
    ],
)
def test_wrong_programs_of_others(program, expected):
    assert ids(blind(program, ADAPTER)) == expected
