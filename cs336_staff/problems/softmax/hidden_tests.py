"""Softmax, hidden."""

import pytest
import torch

import adapters
from cs336_staff.hidden.drawn import drawn
from cs336_staff.hidden.kinds import change_inputs
from cs336_staff.hidden.properties import assert_again, assert_near, assert_right
from cs336_staff.problems.softmax.cases import kinds


def with_a_constant_added(inputs):
    return inputs | {"in_features": inputs["in_features"] + 1000.0}


@pytest.mark.cases("softmax/*")
def test_hidden_softmax(case):
    case.check(adapters.run_softmax(case.in_features, dim=case.dim))


@pytest.mark.cases("softmax-half-precision/*")
def test_hidden_softmax_in_half_precision(case):
    case.check_to_the_last_digit(adapters.run_softmax(case.in_features, dim=case.dim))


@pytest.mark.cases("softmax-last-digit/*")
def test_hidden_softmax_to_the_last_digit(case):
    case.check_to_the_last_digit(adapters.run_softmax(case.in_features, dim=case.dim))


@pytest.mark.cases("softmax-gradients/*")
def test_hidden_softmax_gradients(case):
    case.require_gradients()
    case.check_gradients(adapters.run_softmax(case.in_features, dim=case.dim))


@drawn(kinds())
def test_softmax_of_any_shape(case):
    case.check(adapters.run_softmax(case.in_features, dim=case.dim))


@drawn(kinds())
def test_softmax_sums_to_one(case):
    answer = adapters.run_softmax(case.in_features, dim=case.dim)
    case.check_form(answer)
    sums, tolerance = answer.double().sum(case.dim), case.tolerance["answer"].sum(case.dim)
    assert_near(sums, torch.ones_like(sums), tolerance, f"the slices along dim={case.dim} do not sum to 1")


@drawn(change_inputs(kinds(), with_a_constant_added))
def test_softmax_ignores_a_constant(case):
    answer = adapters.run_softmax(case.in_features, dim=case.dim)
    assert_right(case, answer, "the answer is wrong when 1000 is added to every logit")


@drawn(kinds(gradients=("in_features",)))
def test_softmax_gradients_of_any_shape(case):
    case.require_gradients()
    case.check_gradients(adapters.run_softmax(case.in_features, dim=case.dim))


@pytest.mark.cases("softmax/3d-middle-dim")
def test_softmax_has_no_side_effects(case):
    with case.unchanged_inputs():
        answer = adapters.run_softmax(case.in_features, dim=case.dim)
        case.check(answer)
    again = adapters.run_softmax(case.in_features, dim=case.dim)
    assert_again(case, again, answer)
