"""Attention between two sequences (bonus). You write it in cs336_basics/nn/multihead_attention.py, and its adapter."""

import pytest

import adapters


@pytest.mark.cases("multihead_attention/*")
def test_multihead_attention(case):
    case.check(adapters.run_multihead_attention(**case.inputs))


@pytest.mark.cases("multihead_attention-gradients/*")
def test_multihead_attention_gradients(case):
    case.require_gradients()
    case.check_gradients(adapters.run_multihead_attention(**case.inputs))


@pytest.mark.cases("multihead_attention/no-mask")
def test_multihead_attention_without_a_mask_argument(case):
    del case.inputs["mask"]
    case.check(adapters.run_multihead_attention(**case.inputs))
