"""The linear layer. You write `Linear` in cs336_basics/nn/linear.py and `run_linear` in adapters.py."""

import pytest

import adapters


@pytest.mark.cases("linear/*")
def test_linear(case):
    case.check(
        adapters.run_linear(d_in=case.d_in, d_out=case.d_out, weights=case.weights, in_features=case.in_features)
    )
