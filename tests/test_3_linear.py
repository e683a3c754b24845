"""The linear layer. You write `Linear` in cs336_basics/nn/linear.py and `run_linear` in adapters.py."""

import pytest

import adapters


@pytest.mark.cases("linear/*")
def test_linear(case):
    case.check(adapters.run_linear(**case.inputs))


@pytest.mark.cases("linear/3d")
def test_linear_to_the_last_digit(case):
    case.check_to_the_last_digit(adapters.run_linear(**case.inputs))
