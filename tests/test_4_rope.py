"""Rotary position embedding. You write `RotaryPositionalEmbedding` in cs336_basics/nn/rope.py, and its adapter."""

import pytest

import adapters


@pytest.mark.cases("rope/*")
def test_rope(case):
    case.check(adapters.run_rope(**case.inputs))


@pytest.mark.cases("rope/spaced")
def test_rope_to_the_last_digit(case):
    case.check_to_the_last_digit(adapters.run_rope(**case.inputs))


@pytest.mark.cases("rope-gradients/*")
def test_rope_gradients(case):
    case.require_gradients()
    case.check_gradients(adapters.run_rope(**case.inputs))


@pytest.mark.cases("rope/per-batch")
def test_rope_leaves_its_inputs_alone(case):
    with case.unchanged_inputs():
        adapters.run_rope(**case.inputs)
