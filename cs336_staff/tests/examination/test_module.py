"""What the examination says of attention as a module."""

from functools import partial

import pytest
import torch
from torch.nn import functional as F

from cs336_kit.examination.module import examine_attention_module
from cs336_staff.authoring import parts
from cs336_staff.authoring.misconceptions import module as wrong
from cs336_staff.release.verify import submission

ADAPTER = "run_scaled_dot_product_attention_module"


def ids(run) -> list[str]:
    return [found.id for found in examine_attention_module(run)]


def test_the_numbers_are_those_of_this_function():
    (found,) = examine_attention_module(submission("module-dropout-keeps-p")[ADAPTER])
    assert found.measured == (
        "In training, with a dropout of 0.25, 75% of the weights are 0 and the others 1.33 times what they were; it "
        "should be 25%, and 1.33 times."
    )
    assert found.means == "Weights are kept with probability p."


def module(Q, K, V, mask, dropout, training, seed, *, attention=parts.attention, drop=F.dropout):
    weights = attention(Q, K, torch.eye(K.shape[-2], dtype=K.dtype), mask)
    if training and dropout:
        torch.manual_seed(seed)
        weights = drop(weights, dropout)
    return weights @ V, weights


def without_a_seed(Q, K, V, mask, dropout, training, seed):
    weights = parts.attention(Q, K, torch.eye(K.shape[-2], dtype=K.dtype), mask)
    weights = F.dropout(weights, dropout, training)
    return weights @ V, weights


def with_a_fixed_seed(Q, K, V, mask, dropout, training, seed):
    return module(Q, K, V, mask, dropout, training, 336)


def same_for_all_queries(weights, p):
    return weights * (torch.rand(weights.shape[-1]) >= p) / (1 - p)


def output_alone(*arguments):
    return module(*arguments)[0]


def weights_first(*arguments):
    output, weights = module(*arguments)
    return weights, output


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (module, []),
        (without_a_seed, ["module-seed-ignored"]),
        (with_a_fixed_seed, ["module-seed-fixed"]),
        (partial(module, drop=same_for_all_queries), ["module-dropout-shared"]),
        (output_alone, ["module-no-pair"]),
        (weights_first, ["module-shapes"]),
    ],
)
def test_other_mistakes(run, expected):
    assert ids(run) == expected


def no_scale(Q, K, V, mask):
    return parts.attention(Q, K, V, mask, score=lambda Q, K: Q @ K.mT)


def inverted(Q, K, V, mask):
    return parts.attention(Q, K, V, None if mask is None else ~mask)


@pytest.mark.parametrize(
    ("attention", "first"), [(no_scale, "attention-scale-missing"), (inverted, "attention-mask-inverted")]
)
@pytest.mark.parametrize(
    ("drop", "second"),
    [
        (wrong.renormalised, "module-dropout-renormalised"),
        (lambda weights, p: F.dropout(weights, 1 - p), "module-dropout-divides-by-p"),
        (lambda weights, p: weights, "module-no-dropout"),
    ],
)
def test_two_mistakes_are_both_found(attention, first, drop, second):
    assert ids(partial(module, attention=attention, drop=drop)) == [first, second]
