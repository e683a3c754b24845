"""Causal multi-head self-attention, hidden."""

import pytest
import torch

import adapters
from cs336_staff.hidden.drawn import drawn
from cs336_staff.hidden.properties import assert_same
from cs336_staff.hidden.strategies import multiheads, multiheads_with_rope


@pytest.mark.cases("multihead/*")
def test_hidden_multihead_self_attention(case):
    case.check(adapters.run_multihead_self_attention(**case.inputs))


@pytest.mark.cases("multihead-rope/*")
def test_hidden_multihead_self_attention_with_rope(case):
    case.check(adapters.run_multihead_self_attention_with_rope(**case.inputs))


@drawn(multiheads())
def test_multihead_self_attention_of_any_shape(case):
    case.check(adapters.run_multihead_self_attention(**case.inputs))


@drawn(multiheads_with_rope())
def test_multihead_self_attention_with_rope_of_any_shape(case):
    case.check(adapters.run_multihead_self_attention_with_rope(**case.inputs))


@drawn(multiheads(min_sequence=2))
def test_multihead_self_attention_does_not_look_ahead(case):
    x = case.in_features.clone()
    x[..., -1, :] += 10
    answer = adapters.run_multihead_self_attention(**case.inputs | {"in_features": x})
    assert isinstance(answer, torch.Tensor), f"the answer is a {type(answer).__name__}, expected a tensor"
    assert answer.shape == x.shape, "the answer has another shape than the input"
    right = case.expected["answer"][..., :-1, :].to(x.dtype)
    assert_same(answer[..., :-1, :], right, "another last token changes the answers of earlier tokens")


@pytest.mark.cases("multihead-rope/positions-not-given")
def test_positions_count_from_zero(case):
    del case.inputs["token_positions"]
    case.check(adapters.run_multihead_self_attention_with_rope(**case.inputs))
