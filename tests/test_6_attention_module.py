"""Attention as a module (bonus). You write `ScaledDotProductAttention` in cs336_basics/nn/attention_module.py."""

import pytest
import torch

import adapters
from problems.attention_module.judge import check_dropout


@pytest.mark.cases("attention_module/*")
def test_attention_module(case):
    case.check(adapters.run_scaled_dot_product_attention_module(**case.inputs))


@pytest.mark.cases("attention_module-gradients/*")
def test_attention_module_gradients(case):
    case.require_gradients()
    case.check_gradients(adapters.run_scaled_dot_product_attention_module(**case.inputs))


@pytest.mark.cases("attention_module-dropout/*")
def test_attention_module_dropout(case):
    check_dropout(case, adapters.run_scaled_dot_product_attention_module(**case.inputs))


@pytest.mark.cases("attention_module-dropout/3d-no-mask")
def test_attention_module_follows_the_seed(case):
    def weights(seed):
        answer = adapters.run_scaled_dot_product_attention_module(**case.inputs | {"seed": seed})
        return case.check_form(answer)["matrix of weights"]

    first, again, other = weights(case.seed), weights(case.seed), weights(case.seed + 1)
    assert torch.equal(first, again), "two calls with the same seed drop different weights"
    assert not torch.equal(first, other), "two calls with different seeds drop the same weights"
