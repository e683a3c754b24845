"""Softmax, hidden."""

import pytest
import torch

import adapters
from problems.softmax.staff.cases import kinds
from whichline_grader.author import (
    again,
    assert_near,
    assert_no_side_effects,
    assert_right,
    change_inputs,
    drawn,
    public_tests,
)

public = public_tests("test_1_softmax.py")


test_hidden_softmax = again(public.test_softmax)
test_hidden_softmax_in_half_precision = again(public.test_softmax_in_half_precision)
test_hidden_softmax_to_the_last_digit = again(public.test_softmax_to_the_last_digit)
test_hidden_softmax_gradients = again(public.test_softmax_gradients)
test_softmax_of_any_shape = again(public.test_softmax, kinds())
test_softmax_gradients_of_any_shape = again(public.test_softmax_gradients, kinds(gradients=("in_features",)))


@drawn(kinds())
def test_softmax_sums_to_one(case):
    answer = adapters.run_softmax(case.in_features, dim=case.dim)
    case.check_form(answer)
    sums, tolerance = answer.double().sum(case.dim), case.tolerance["answer"].sum(case.dim)
    assert_near(sums, torch.ones_like(sums), tolerance, f"the slices along dim={case.dim} do not sum to 1")


@drawn(change_inputs(kinds(), lambda inputs: inputs | {"in_features": inputs["in_features"] + 1000.0}))
def test_softmax_ignores_a_constant(case):
    answer = adapters.run_softmax(case.in_features, dim=case.dim)
    assert_right(case, answer, "the answer is wrong when 1000 is added to every logit")


@pytest.mark.cases("softmax/3d-middle-dim")
def test_softmax_has_no_side_effects(case):
    assert_no_side_effects(case, lambda: adapters.run_softmax(case.in_features, dim=case.dim))
