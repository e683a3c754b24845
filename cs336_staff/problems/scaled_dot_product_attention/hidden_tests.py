"""Attention, hidden."""

import pytest
import torch

import adapters
from cs336_staff.hidden.drawn import drawn
from cs336_staff.hidden.kinds import ONE_MORE, change_inputs
from cs336_staff.hidden.properties import assert_again, assert_right
from cs336_staff.problems.scaled_dot_product_attention.cases import kinds, kinds_without_a_mask


def answer_of(case):
    return adapters.run_scaled_dot_product_attention(Q=case.Q, K=case.K, V=case.V, mask=case.mask)


def with_one_value(inputs):
    return inputs | {"V": inputs["V"][..., :1, :].expand_as(inputs["V"]).clone()}


def with_keys_in_another_order(inputs):
    mask = None if inputs["mask"] is None else inputs["mask"].flip(-1)
    return inputs | {"K": inputs["K"].flip(-2), "V": inputs["V"].flip(-2), "mask": mask}


def with_a_masked_key(inputs):
    """One more key, which no query may attend to."""
    K, V, mask = inputs["K"], inputs["V"], inputs["mask"]
    return inputs | {
        "K": torch.cat((K, torch.full_like(K[..., :1, :], 1e6)), -2),
        "V": torch.cat((V, torch.full_like(V[..., :1, :], 1e30)), -2),
        "mask": torch.cat((mask, torch.zeros_like(mask[..., :1])), -1),
    }


def of_the_last_batch_entry(inputs):
    return inputs | {name: inputs[name][-1] for name in "QKV"}


@pytest.mark.cases("attention/3d-*")
def test_hidden_attention(case):
    case.check(answer_of(case))


@pytest.mark.cases("attention/4d-*")
def test_hidden_4d_attention(case):
    case.check(answer_of(case))


@pytest.mark.cases("attention/other-*")
def test_hidden_attention_of_any_batch(case):
    case.check(answer_of(case))


@pytest.mark.cases("attention-half-precision/*")
def test_hidden_attention_in_half_precision(case):
    case.check_to_the_last_digit(answer_of(case))


@pytest.mark.cases("attention-last-digit/*")
def test_hidden_attention_to_the_last_digit(case):
    case.check_to_the_last_digit(answer_of(case))


@pytest.mark.cases("attention-gradients/*")
def test_hidden_attention_gradients(case):
    case.require_gradients()
    case.check_gradients(answer_of(case))


@pytest.mark.cases("attention-nothing/*")
def test_hidden_attention_with_nothing_to_attend_to(case):
    case.check(answer_of(case))


@drawn(kinds(), kinds_without_a_mask())
def test_attention_of_any_shape(case):
    case.check(answer_of(case))


@drawn(
    change_inputs(kinds(masks=("random", "full")), with_one_value),
    change_inputs(kinds_without_a_mask(), with_one_value),
)
def test_attention_averages_the_values(case):
    message = "the answer is wrong when every key has the same value: do the weights of a query sum to 1?"
    assert_right(case, answer_of(case), message)


@drawn(
    change_inputs(kinds(masks=("random", "full")), with_keys_in_another_order),
    change_inputs(kinds_without_a_mask(), with_keys_in_another_order),
)
def test_attention_ignores_the_order_of_keys(case):
    assert_right(case, answer_of(case), "the answer is wrong when keys, values and mask are reordered")


@drawn(change_inputs(kinds(masks=("random", "full")), with_a_masked_key))
def test_attention_ignores_masked_keys(case):
    message = "the answer is wrong when a key is masked for every query: its weight must be exactly 0"
    assert_right(case, answer_of(case), message)


@drawn(change_inputs(kinds(("causal", "random"), ONE_MORE), of_the_last_batch_entry))
def test_attention_treats_batch_entries_alone(case):
    assert_right(case, answer_of(case), "the answer is wrong for one entry of the batch alone")


@drawn(kinds(gradients=("Q", "K", "V")), kinds_without_a_mask(gradients=("Q", "K", "V")))
def test_attention_gradients_of_any_shape(case):
    case.require_gradients()
    case.check_gradients(answer_of(case))


@pytest.mark.cases("attention/3d-mask-per-batch")
def test_attention_has_no_side_effects(case):
    with case.unchanged_inputs():
        answer = answer_of(case)
        case.check(answer)
    assert_again(case, answer_of(case), answer)
