"""Softmax, hidden."""

import pytest
import torch

import adapters
from cs336_staff.hidden.drawn import drawn
from cs336_staff.hidden.properties import assert_property, assert_right, is_same
from cs336_staff.hidden.strategies import changed, softmaxes

PRECISE = (torch.float32, torch.float64)


def with_a_constant_added(inputs):
    return inputs | {"in_features": inputs["in_features"] + 1000.0}


@pytest.mark.cases("softmax/*")
def test_hidden_softmax(case):
    case.check(adapters.run_softmax(case.in_features, dim=case.dim))


@pytest.mark.cases("softmax-gradients/*")
def test_hidden_softmax_gradients(case):
    case.require_gradients()
    case.check_gradients(adapters.run_softmax(case.in_features, dim=case.dim))


@drawn(softmaxes())
def test_softmax_of_any_shape(case):
    case.check(adapters.run_softmax(case.in_features, dim=case.dim))


@drawn(softmaxes(dtypes=PRECISE))
def test_softmax_sums_to_one(case):
    answer = adapters.run_softmax(case.in_features, dim=case.dim)
    assert isinstance(answer, torch.Tensor), f"the answer is a {type(answer).__name__}, expected a tensor"
    assert answer.shape == case.in_features.shape, "the answer has another shape than the input"
    right = torch.ones(case.in_features.movedim(case.dim, -1).shape[:-1], dtype=case.in_features.dtype)
    tolerance = case.in_features.shape[case.dim] * case.tolerance["answer"]
    sums = is_same(answer.sum(case.dim), right, tolerance)
    assert_property(case, answer, sums, f"the slices along dim={case.dim} do not sum to 1")


@drawn(changed(softmaxes(dtypes=PRECISE), with_a_constant_added))
def test_softmax_ignores_a_constant(case):
    answer = adapters.run_softmax(case.in_features, dim=case.dim)
    assert_right(case, answer, "adding 1000 to every logit changes the answer")


@drawn(softmaxes(dtypes=PRECISE, gradients=("in_features",)))
def test_softmax_gradients_of_any_shape(case):
    case.require_gradients()
    case.check_gradients(adapters.run_softmax(case.in_features, dim=case.dim))


@pytest.mark.cases("softmax/3d-middle-dim")
def test_softmax_has_no_side_effects(case):
    with case.unchanged_inputs():
        answer = adapters.run_softmax(case.in_features, dim=case.dim)
        case.check(answer)
    again = adapters.run_softmax(case.in_features, dim=case.dim)
    assert is_same(again, answer), "the same call gives another answer the second time"
