"""Rotary position embedding. You write `RotaryPositionalEmbedding` in cs336_basics/nn/rope.py, and its adapter."""

import pytest

import adapters


@pytest.mark.cases("rope/*")
def test_rope(case):
    answer = adapters.run_rope(
        d_k=case.d_k,
        theta=case.theta,
        max_seq_len=case.max_seq_len,
        in_query_or_key=case.in_query_or_key,
        token_positions=case.token_positions,
    )
    case.check(answer)
