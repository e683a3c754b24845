"""The public tests of `batch_norm`."""

import pytest

import adapters


@pytest.mark.cases("batch_norm/*")
def test_batch_norm(case):
    with case.unchanged_inputs():
        answer = adapters.run_batch_norm(**case.inputs)
    case.check(answer)
