"""Causal multi-head self-attention. You write it in cs336_basics/nn/attention.py, and its two adapters."""

import pytest

import adapters


@pytest.mark.cases("multihead/*")
def test_multihead_self_attention(case):
    case.check(adapters.run_multihead_self_attention(**case.inputs))


@pytest.mark.cases("multihead-rope/*")
def test_multihead_self_attention_with_rope(case):
    case.check(adapters.run_multihead_self_attention_with_rope(**case.inputs))


@pytest.mark.cases("multihead-gradients/*")
def test_multihead_self_attention_gradients(case):
    case.require_gradients()
    case.check_gradients(adapters.run_multihead_self_attention(**case.inputs))


@pytest.mark.cases("multihead-rope-gradients/*")
def test_multihead_self_attention_with_rope_gradients(case):
    case.require_gradients()
    case.check_gradients(adapters.run_multihead_self_attention_with_rope(**case.inputs))


@pytest.mark.cases("multihead-rope/per-batch")
def test_multihead_self_attention_leaves_its_inputs_alone(case):
    with case.unchanged_inputs():
        adapters.run_multihead_self_attention_with_rope(**case.inputs)
