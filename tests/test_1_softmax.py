"""Softmax. You write `softmax` in cs336_basics/nn/functional.py and `run_softmax` in adapters.py."""

import pytest
import torch

import adapters


@pytest.mark.cases("softmax/*")
def test_softmax(case):
    case.check(adapters.run_softmax(case.in_features, dim=case.dim))


@pytest.mark.cases("softmax-gradients/*")
def test_softmax_gradients(case):
    case.require_gradients()
    case.check_gradients(adapters.run_softmax(case.in_features, dim=case.dim))


@pytest.mark.cases("softmax/3d-last-dim")
def test_softmax_leaves_its_input_alone(case):
    before = case.in_features.clone()
    adapters.run_softmax(case.in_features, dim=case.dim)
    assert torch.equal(case.in_features, before), "softmax changed its input: an operation in place, such as x -= ..."
