"""The public tests of `conv2d`."""

import pytest

import adapters


def run(case):
    return adapters.run_conv2d(x=case.x, weight=case.weight, bias=case.bias, stride=case.stride, padding=case.padding)


@pytest.mark.cases("conv2d/*")
def test_conv2d(case):
    with case.unchanged_inputs():
        answer = run(case)
    case.check(answer)


@pytest.mark.cases("conv2d-gradients/*")
def test_conv2d_gradients(case):
    case.require_gradients()
    case.check_gradients(run(case))
