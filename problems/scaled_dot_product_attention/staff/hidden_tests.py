"""Attention, hidden."""

import pytest
import torch

import adapters
from problems.scaled_dot_product_attention.staff.cases import kinds, kinds_without_a_mask
from whichline_grader.author import again, assert_no_side_effects, assert_right, change_inputs, drawn, public_tests
from whichline_grader.hidden.kinds import ONE_MORE

public = public_tests("test_2_attention.py")


def answer_of(case):
    return adapters.run_scaled_dot_product_attention(Q=case.Q, K=case.K, V=case.V, mask=case.mask)


def with_one_value(inputs):
    return inputs | {"V": inputs["V"][..., :1, :].expand_as(inputs["V"]).clone()}


def with_keys_in_another_order(inputs):
    mask = None if inputs["mask"] is None else inputs["mask"].flip(-1)
    return inputs | {"K": inputs["K"].flip(-2), "V": inputs["V"].flip(-2), "mask": mask}


def with_a_masked_key(inputs):
    """Append a key that no query may attend to."""
    K, V, mask = inputs["K"], inputs["V"], inputs["mask"]
    return inputs | {
        "K": torch.cat((K, torch.full_like(K[..., :1, :], 1e6)), -2),
        "V": torch.cat((V, torch.full_like(V[..., :1, :], 1e30)), -2),
        "mask": torch.cat((mask, torch.zeros_like(mask[..., :1])), -1),
    }


def of_the_last_batch_entry(inputs):
    return inputs | {name: inputs[name][-1] for name in "QKV"}


test_hidden_attention = again(public.test_scaled_dot_product_attention)
test_hidden_4d_attention = again(public.test_4d_scaled_dot_product_attention)
test_hidden_attention_of_any_batch = again(public.test_any_batch_scaled_dot_product_attention)
test_hidden_attention_in_half_precision = again(public.test_scaled_dot_product_attention_in_half_precision)
test_hidden_attention_to_the_last_digit = again(public.test_scaled_dot_product_attention_to_the_last_digit)
test_hidden_attention_gradients = pytest.mark.cases("attention-gradients/*")(
    again(public.test_scaled_dot_product_attention_gradients)
)
test_hidden_attention_with_nothing_to_attend_to = again(
    public.test_scaled_dot_product_attention_with_nothing_to_attend_to
)
test_attention_of_any_shape = again(public.test_scaled_dot_product_attention, kinds(), kinds_without_a_mask())
test_attention_gradients_of_any_shape = again(
    public.test_scaled_dot_product_attention_gradients,
    kinds(gradients=("Q", "K", "V")),
    kinds_without_a_mask(gradients=("Q", "K", "V")),
)


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


@pytest.mark.cases("attention/3d-mask-per-batch")
def test_attention_has_no_side_effects(case):
    assert_no_side_effects(case, lambda: answer_of(case))
