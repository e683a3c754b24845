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
    case.check(answer)
    totals = answer.sum(case.dim)
    assert_same(totals, torch.ones_like(totals), f"the slices along dim={case.dim} do not sum to 1")


@drawn(softmaxes(dtypes=PRECISE))
def test_softmax_ignores_a_constant(case):
    # Sixteenths, so that adding 1000 rounds nothing.
    x = (case.in_features * 16).round() / 16
    right = torch.softmax(x.double(), case.dim).to(x.dtype)
    assert_same(adapters.run_softmax(x, dim=case.dim), right, "the answer is wrong")
    message = "adding 1000 to every logit changes the answer"
    assert_same(adapters.run_softmax(x + 1000, dim=case.dim), right, message)


@drawn(softmaxes(dtypes=PRECISE, gradients=("in_features",)))
def test_softmax_gradients_of_any_shape(case):
    case.require_gradients()
    case.check_gradients(adapters.run_softmax(case.in_features, dim=case.dim))


@drawn(softmaxes())
def test_softmax_has_no_side_effects(case):
    before = case.in_features.clone()
    answer = adapters.run_softmax(case.in_features, dim=case.dim)
    case.check(answer)
    assert torch.equal(case.in_features, before), "softmax changed its input: an operation in place, such as x -= ..."
    again = adapters.run_softmax(case.in_features, dim=case.dim)
    assert_same(again, answer, "the same call gives another answer the second time")
