"""Attention, hidden."""

import pytest
import torch
from hypothesis import strategies as st

import adapters
from cs336_staff.hidden.drawn import drawn
from cs336_staff.hidden.properties import assert_same
from cs336_staff.hidden.strategies import attentions


def answer_of(case):
    return adapters.run_scaled_dot_product_attention(Q=case.Q, K=case.K, V=case.V, mask=case.mask)


def right_answer_of(case):
    return case.expected["answer"].to(case.Q.dtype)


@pytest.mark.cases("attention/3d-*")
def test_hidden_attention(case):
    case.check(answer_of(case))


@pytest.mark.cases("attention/4d-*")
def test_hidden_4d_attention(case):
    case.check(answer_of(case))


@pytest.mark.cases("attention/other-*")
def test_hidden_attention_of_any_batch(case):
    case.check(answer_of(case))


@pytest.mark.cases("attention-gradients/*")
def test_hidden_attention_gradients(case):
    case.require_gradients()
    case.check_gradients(answer_of(case))


@pytest.mark.cases("attention-nothing/*")
def test_hidden_attention_with_nothing_to_attend_to(case):
    case.check(answer_of(case))


@drawn(attentions())
def test_attention_of_any_shape(case):
    case.check(answer_of(case))


@drawn(attentions(masks=(None, "random", "full")))
def test_attention_averages_the_values(case):
    answer = adapters.run_scaled_dot_product_attention(case.Q, case.K, torch.ones_like(case.V), case.mask)
    message = "with every value equal to 1 the answer is not 1: the weights of a query do not sum to 1"
    assert_same(answer, torch.ones_like(right_answer_of(case)), message)


@drawn(attentions(masks=(None, "random", "full")))
def test_attention_ignores_the_order_of_keys(case):
    mask = None if case.mask is None else case.mask.flip(-1)
    answer = adapters.run_scaled_dot_product_attention(case.Q, case.K.flip(-2), case.V.flip(-2), mask)
    message = "with keys, values and mask in another order the answer is another"
    assert_same(answer, right_answer_of(case), message)


@drawn(attentions(masks=("random", "full")))
def test_attention_ignores_masked_keys(case):
    # One more key, which no query may attend to.
    mask = torch.cat((case.mask, torch.zeros_like(case.mask[..., :1])), -1)
    K = torch.cat((case.K, torch.full_like(case.K[..., :1, :], 1e6)), -2)
    V = torch.cat((case.V, torch.full_like(case.V[..., :1, :], 1e30)), -2)
    answer = adapters.run_scaled_dot_product_attention(case.Q, K, V, mask)
    message = "a key that is masked for every query changes the answer: its weight must be exactly 0"
    assert_same(answer, right_answer_of(case), message)


@drawn(attentions(batch=st.lists(st.integers(2, 3), min_size=1, max_size=2), masks=(None, "causal", "random")))
def test_attention_treats_batch_entries_alone(case):
    answer = adapters.run_scaled_dot_product_attention(case.Q[-1], case.K[-1], case.V[-1], case.mask)
    message = "an entry of the batch has another answer alone than in the batch"
    assert_same(answer, right_answer_of(case)[-1], message)


@drawn(attentions(gradients=("Q", "K", "V")))
def test_attention_gradients_of_any_shape(case):
    case.require_gradients()
    case.check_gradients(answer_of(case))


@drawn(attentions(masks=("full",)))
def test_attention_has_no_side_effects(case):
    before = {name: tensor.clone() for name, tensor in case.inputs.items()}
    answer = answer_of(case)
    case.check(answer)
    for name, tensor in case.inputs.items():
        assert torch.equal(tensor, before[name]), (
            f"attention changed {name}: an operation in place, such as {name} /= ..."
        )
    assert_same(answer_of(case), answer, "the same call gives another answer the second time")
