"""Softmax, hidden."""

import pytest
import torch

import adapters
from cs336_staff.hidden.drawn import drawn
from cs336_staff.hidden.properties import assert_same
from cs336_staff.hidden.strategies import softmaxes

PRECISE = (torch.float32, torch.float64)


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
    assert_same(answer.sum(case.dim), right, f"the slices along dim={case.dim} do not sum to 1", tolerance)


@drawn(softmaxes(dtypes=PRECISE, constant=1000.0))
def test_softmax_ignores_a_constant(case):
    x = case.in_features
    right = torch.softmax(x.double() - 1000, case.dim).to(x.dtype)
    message = "adding 1000 to every logit changes the answer"
    assert_same(adapters.run_softmax(x, dim=case.dim), right, message, case.tolerance["answer"])


@drawn(softmaxes(dtypes=PRECISE, gradients=("in_features",)))
def test_softmax_gradients_of_any_shape(case):
    case.require_gradients()
    case.check_gradients(adapters.run_softmax(case.in_features, dim=case.dim))


@pytest.mark.cases("softmax/3d-middle-dim")
def test_softmax_has_no_side_effects(case):
    before = case.in_features.clone()
    answer = adapters.run_softmax(case.in_features, dim=case.dim)
    case.check(answer)
    assert torch.equal(case.in_features, before), "softmax changed its input: an operation in place, such as x -= ..."
    again = adapters.run_softmax(case.in_features, dim=case.dim)
    assert_same(again, answer, "the same call gives another answer the second time")
