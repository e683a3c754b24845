"""The public tests of `conv2d`."""

import pytest

import adapters


@pytest.mark.cases("conv2d/*")
def test_conv2d(case):
    with case.unchanged_inputs():
        answer = adapters.run_conv2d(**case.inputs)
    case.check(answer)


@pytest.mark.cases("conv2d-gradients/*")
def test_conv2d_gradients(case):
    case.require_gradients()
    case.check_gradients(adapters.run_conv2d(**case.inputs))
