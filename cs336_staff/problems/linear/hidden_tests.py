"""The linear layer, hidden."""

import pytest

import adapters
from cs336_staff.hidden.drawn import drawn
from cs336_staff.problems.linear.cases import kinds


@pytest.mark.cases("linear/*")
def test_hidden_linear(case):
    case.check(adapters.run_linear(**case.inputs))


@pytest.mark.cases("linear/3d")
def test_hidden_linear_to_the_last_digit(case):
    case.check_to_the_last_digit(adapters.run_linear(**case.inputs))


@drawn(kinds())
def test_linear_of_any_shape(case):
    case.check(adapters.run_linear(**case.inputs))
