"""What the examination says of attention: of a right one, and in which words."""

import math
import re
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from cs336_kit.problems.scaled_dot_product_attention.examination import examine_attention
from cs336_staff.problems.scaled_dot_product_attention.programs import attention


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


def test_what_is_just_allowed_has_none():
    assert ids(lowest_and_zeroed) == []


def test_a_number_is_fitted():
    run = partial(attention, scale=lambda Q, K, V: 1 / 6.5)
    assert "You divide by 6.5 whatever d_k is." in text(
        lambda Q, K, V, mask=None: run(Q, K, V, mask), "attention-scale-constant"
    )


@pytest.mark.parametrize("fill", [-1.5, -70.0, -3e4, -1e9])
def test_any_finite_fill_is_found_and_measured(fill):
    def run(Q, K, V, mask=None):
        return attention(Q, K, V, mask, hide=lambda S, mask, softmax: softmax(S.masked_fill(~mask, fill)))

    found = re.search(r"Hidden scores are replaced by about (.+), not by -inf", text(run, "attention-mask-fill"))
    assert found
    assert 0.5 <= float(found[1].replace(",", "")) / fill <= 2


def test_what_no_mistake_explains_is_measured_and_no_cause_is_told():
    def run(Q, K, V, mask=None):
        return attention(Q, K, V, mask, limit=lambda S: S + 0.3 * S.sin())

    (found,) = examine_attention(run)
    assert found.id == "attention-scores-other"
    assert found.measured.startswith("The logarithms of your weights are not a multiple of Q Kᵀ: ")
    assert not found.means


def test_where_the_mask_alone_is_not_explained_the_mask_alone_is_measured():
    def run(Q, K, V, mask=None):
        some = None if mask is None else mask | (torch.arange(mask.shape[-1]) == 2)
        return attention(Q, K, V, some, scale=lambda Q, K, V: 1.0)

    scale, mask, nothing = examine_attention(run)
    assert scale.id == "attention-scale-missing"
    assert "gives your numbers in all 11 calls without a mask" in scale.means
    assert mask.id == "attention-mask-other"
    assert nothing.id == "attention-nothing-other"
    assert not mask.means
    assert not nothing.means


def test_weights_in_half_precision_are_named():
    def run(Q, K, V, mask=None):
        return attention(Q, K, V, mask, weights=lambda W, wide: W.to(Q.dtype).to(W.dtype))

    assert ids(run) == ["attention-half-weights"]


@pytest.mark.parametrize(
    ("slope", "said"),
    [
        (lambda q, k: q @ k.mT, "The gradients of Q and K lack the factor 1/√d_k."),
        (lambda q, k: q @ k.mT * 3.0, "Which part of your formula does autograd treat as constant?"),
        (lambda q, k: torch.zeros(()), "What is made of Q and K is cut off from autograd"),
    ],
)
def test_a_cause_of_wrong_gradients_is_told_if_it_gives_the_same_ones(slope, said):
    def score(Q, K):
        other = slope(Q, K)
        return (Q @ K.mT).detach() + other * Q.shape[-1] ** 0.5 - other.detach() * Q.shape[-1] ** 0.5

    def run(Q, K, V, mask=None):
        return attention(Q, K, V, mask, score=score)

    (found,) = examine_attention(run)
    assert said in f"{found.means} {found.question}"


def test_what_answers_in_float64_alone_is_called_twice_too():
    def run(Q, K, V, mask=None):
        if Q.dtype != torch.float64:
            raise TypeError("expected float64")
        return F.dropout(attention(Q, K, V, mask), 0.5)

    assert ids(run) == ["attention-fails-unless-float64", "attention-random"]
