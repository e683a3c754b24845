"""Causal multi-head self-attention. You write it in cs336_basics/nn/attention.py, and its two adapters."""

import pytest

import adapters


@pytest.mark.cases("multihead/*")
def test_multihead_self_attention(case):
    answer = adapters.run_multihead_self_attention(
        d_model=case.d_model,
        num_heads=case.num_heads,
        q_proj_weight=case.q_proj_weight,
        k_proj_weight=case.k_proj_weight,
        v_proj_weight=case.v_proj_weight,
        o_proj_weight=case.o_proj_weight,
        in_features=case.in_features,
    )
    case.check(answer)


@pytest.mark.cases("multihead-rope/*")
def test_multihead_self_attention_with_rope(case):
    answer = adapters.run_multihead_self_attention_with_rope(
        d_model=case.d_model,
        num_heads=case.num_heads,
        max_seq_len=case.max_seq_len,
        theta=case.theta,
        q_proj_weight=case.q_proj_weight,
        k_proj_weight=case.k_proj_weight,
        v_proj_weight=case.v_proj_weight,
        o_proj_weight=case.o_proj_weight,
        in_features=case.in_features,
        token_positions=case.token_positions,
    )
    case.check(answer)


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
