"""Attention. You write `scaled_dot_product_attention` in cs336_basics/nn/functional.py, and its adapter."""

import pytest

import adapters


@pytest.mark.cases("attention/3d-*")
def test_scaled_dot_product_attention(case):
    case.check(adapters.run_scaled_dot_product_attention(Q=case.Q, K=case.K, V=case.V, mask=case.mask))


@pytest.mark.cases("attention/4d-*")
def test_4d_scaled_dot_product_attention(case):
    case.check(adapters.run_scaled_dot_product_attention(Q=case.Q, K=case.K, V=case.V, mask=case.mask))


@pytest.mark.cases("attention/other-*")
def test_any_batch_scaled_dot_product_attention(case):
    case.check(adapters.run_scaled_dot_product_attention(Q=case.Q, K=case.K, V=case.V, mask=case.mask))


@pytest.mark.cases("attention-half-precision/*")
def test_scaled_dot_product_attention_in_half_precision(case):
    answer = adapters.run_scaled_dot_product_attention(Q=case.Q, K=case.K, V=case.V, mask=case.mask)
    case.check_to_the_last_digit(answer)


@pytest.mark.cases("attention-last-digit/*")
def test_scaled_dot_product_attention_to_the_last_digit(case):
    answer = adapters.run_scaled_dot_product_attention(Q=case.Q, K=case.K, V=case.V, mask=case.mask)
    case.check_to_the_last_digit(answer)


@pytest.mark.cases("attention-gradients/3d-*")
def test_scaled_dot_product_attention_gradients(case):
    case.require_gradients()
    case.check_gradients(adapters.run_scaled_dot_product_attention(Q=case.Q, K=case.K, V=case.V, mask=case.mask))


@pytest.mark.cases("attention-gradients/4d-*")
def test_4d_scaled_dot_product_attention_gradients(case):
    case.require_gradients()
    case.check_gradients(adapters.run_scaled_dot_product_attention(Q=case.Q, K=case.K, V=case.V, mask=case.mask))


@pytest.mark.cases("attention-nothing/*")
def test_scaled_dot_product_attention_with_nothing_to_attend_to(case):
    case.check(adapters.run_scaled_dot_product_attention(Q=case.Q, K=case.K, V=case.V, mask=case.mask))


@pytest.mark.cases("attention/3d-no-mask")
def test_scaled_dot_product_attention_without_a_mask_argument(case):
    case.check(adapters.run_scaled_dot_product_attention(case.Q, case.K, case.V))


@pytest.mark.cases("attention/3d-causal")
def test_scaled_dot_product_attention_leaves_its_inputs_alone(case):
    with case.unchanged_inputs():
        adapters.run_scaled_dot_product_attention(Q=case.Q, K=case.K, V=case.V, mask=case.mask)
