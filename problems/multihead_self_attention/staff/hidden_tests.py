"""Causal multi-head self-attention, hidden."""

import pytest

import adapters
from problems.multihead_self_attention.staff.cases import kinds, kinds_with_rope
from whichline_grader.author import again, assert_near, assert_no_side_effects, change_inputs, drawn, public_tests

public = public_tests("test_5_multihead.py")


def with_another_last_token(inputs):
    x = inputs["in_features"].clone()
    x[..., -1, :] += 10
    return inputs | {"in_features": x}


test_hidden_multihead_self_attention = again(public.test_multihead_self_attention)
test_hidden_multihead_self_attention_with_rope = again(public.test_multihead_self_attention_with_rope)
test_hidden_multihead_self_attention_gradients = again(public.test_multihead_self_attention_gradients)
test_hidden_multihead_self_attention_with_rope_gradients = again(
    public.test_multihead_self_attention_with_rope_gradients
)
test_multihead_self_attention_of_any_shape = again(public.test_multihead_self_attention, kinds())
test_multihead_self_attention_with_rope_of_any_shape = again(
    public.test_multihead_self_attention_with_rope, kinds_with_rope()
)


@drawn(change_inputs(kinds(), with_another_last_token))
def test_multihead_self_attention_does_not_look_ahead(case):
    answer = adapters.run_multihead_self_attention(**case.inputs)
    case.check_form(answer)
    earlier, tolerance = case.expected["answer"][..., :-1, :], case.tolerance["answer"][..., :-1, :]
    message = "the answers for the tokens before the last one are wrong: do they depend on the last one?"
    assert_near(answer[..., :-1, :].double(), earlier, tolerance, message)


@pytest.mark.cases("multihead-rope/positions-not-given")
def test_positions_count_from_zero(case):
    del case.inputs["token_positions"]
    case.check(adapters.run_multihead_self_attention_with_rope(**case.inputs))


@pytest.mark.cases("multihead-rope/square")
def test_multihead_self_attention_has_no_side_effects(case):
    assert_no_side_effects(case, lambda: adapters.run_multihead_self_attention_with_rope(**case.inputs))
