"""The public tests of `batch_norm`."""

import pytest

import adapters

ARGUMENTS = ("x", "weight", "bias", "running_mean", "running_var", "training", "eps")


@pytest.mark.cases("batch_norm/*")
def test_batch_norm(case):
    with case.unchanged_inputs():
        answer = adapters.run_batch_norm(**{name: getattr(case, name) for name in ARGUMENTS})
    case.check(answer)
