"""Causal multi-head self-attention, hidden."""

import pytest
import torch
from hypothesis import strategies as st

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
    before = adapters.run_multihead_self_attention(**case.inputs)
    case.check(before)
    x = case.in_features.clone()
    x[..., -1, :] += 10
    after = adapters.run_multihead_self_attention(**case.inputs | {"in_features": x})
    assert isinstance(after, torch.Tensor), f"the answer is a {type(after).__name__}, expected a tensor"
    assert after.shape == before.shape, "a new last token changes the shape of the answer"
    assert_same(after[..., :-1, :], before[..., :-1, :], "another last token changes the answers of earlier tokens")


@drawn(multiheads(batch=st.lists(st.integers(2, 3), min_size=1, max_size=2)))
def test_multihead_self_attention_treats_batch_entries_alone(case):
    alone = adapters.run_multihead_self_attention(**case.inputs | {"in_features": case.in_features[-1]})
    right = case.expected["answer"][-1].to(case.in_features.dtype)
    assert_same(alone, right, "an entry of the batch has another answer alone than in the batch")


@drawn(multiheads_with_rope(positions=("not given",)))
def test_positions_count_from_zero(case):
    del case.inputs["token_positions"]
    case.check(adapters.run_multihead_self_attention_with_rope(**case.inputs))
