"""Softmax. You write `softmax` in cs336_basics/nn/functional.py and `run_softmax` in adapters.py."""

import pytest

import adapters


@pytest.mark.cases("softmax/*")
def test_softmax(case):
    case.check(adapters.run_softmax(case.in_features, dim=case.dim))


@pytest.mark.cases("softmax-half-precision/*")
def test_softmax_in_half_precision(case):
    case.check_to_the_last_digit(adapters.run_softmax(case.in_features, dim=case.dim))


@pytest.mark.cases("softmax-last-digit/*")
def test_softmax_to_the_last_digit(case):
    case.check_to_the_last_digit(adapters.run_softmax(case.in_features, dim=case.dim))


@pytest.mark.cases("softmax-gradients/*")
def test_softmax_gradients(case):
    case.require_gradients()
    case.check_gradients(adapters.run_softmax(case.in_features, dim=case.dim))


@pytest.mark.cases("softmax/3d-last-dim")
def test_softmax_leaves_its_input_alone(case):
    with case.unchanged_inputs():
        adapters.run_softmax(case.in_features, dim=case.dim)
