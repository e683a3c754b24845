"""Blockwise attention. You write it in cs336_basics/nn/blockwise.py, and its adapter."""

import pytest

import adapters


@pytest.mark.cases("blockwise/*")
def test_blockwise_attention(case):
    answer = adapters.run_blockwise_attention(Q=case.Q, K=case.K, V=case.V, mask=case.mask, block_size=case.block_size)
    case.check(answer)


@pytest.mark.cases("blockwise-gradients/*")
def test_blockwise_attention_gradients(case):
    case.require_gradients()
    answer = adapters.run_blockwise_attention(Q=case.Q, K=case.K, V=case.V, mask=case.mask, block_size=case.block_size)
    case.check_gradients(answer)


@pytest.mark.cases("blockwise/first-block-hidden")
def test_blockwise_attention_leaves_its_inputs_alone(case):
    with case.unchanged_inputs():
        adapters.run_blockwise_attention(Q=case.Q, K=case.K, V=case.V, mask=case.mask, block_size=case.block_size)
