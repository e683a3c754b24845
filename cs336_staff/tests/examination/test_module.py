"""What the examination says of attention as a module."""

from functools import partial

import pytest
import torch
from torch.nn import functional as F

from cs336_kit.problems.attention_module.examination import examine_attention_module
from cs336_staff.problems.attention_module.mistakes import renormalised
from cs336_staff.problems.scaled_dot_product_attention import programs


def ids(run) -> list[str]:
    return [found.id for found in examine_attention_module(run)]


def module(Q, K, V, mask, dropout, training, seed, *, attention=programs.attention, drop=F.dropout):
    weights = attention(Q, K, torch.eye(K.shape[-2], dtype=K.dtype), mask)
    if training and dropout:
        torch.manual_seed(seed)
        weights = drop(weights, dropout)
    return weights @ V, weights


def same_for_all_queries(weights, p):
    return weights * (torch.rand(weights.shape[-1]) >= p) / (1 - p)


def inverts_floats(weights, p):
    return weights.masked_fill(~torch.bernoulli(torch.full_like(weights, 1 - p)), 0.0) / (1 - p)


def test_what_raises_in_training_is_quoted():
    (found,) = examine_attention_module(partial(module, drop=inverts_floats))
    assert found.measured == (
        "Your module works in evaluation and fails in training, with a dropout of 0.25: `TypeError: ~ "
        "(operator.invert) is only implemented on integer and Boolean-type tensors`."
    )
    assert isinstance(found.error, TypeError)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda *arguments: module(*arguments[:-1], seed=336), ["module-seed-fixed"]),
        (partial(module, drop=same_for_all_queries), ["module-dropout-shared"]),
        (lambda *arguments: module(*arguments)[0], ["module-no-pair"]),
        (lambda *arguments: module(*arguments)[::-1], ["module-no-pair"]),
    ],
)
def test_other_mistakes(run, expected):
    assert ids(run) == expected


no_scale = partial(programs.attention, scale=lambda Q, K, V: 1.0)


def inverted(Q, K, V, mask):
    return programs.attention(Q, K, V, None if mask is None else ~mask)


@pytest.mark.parametrize(
    ("attention", "first"), [(no_scale, "attention-scale-missing"), (inverted, "attention-mask-inverted")]
)
@pytest.mark.parametrize(
    ("drop", "second"),
    [
        (renormalised, "module-dropout-renormalised"),
        (lambda weights, p: F.dropout(weights, 1 - p), "module-dropout-divides-by-p"),
        (lambda weights, p: weights, "module-no-dropout"),
    ],
)
def test_two_mistakes_are_both_found(attention, first, drop, second):
    assert ids(partial(module, attention=attention, drop=drop)) == [first, second]
