"""CHANGE: the public tests of your problem; `cases` names the stored cases that one runs on."""

import pytest

import adapters


@pytest.mark.cases("standardize/*")
def test_standardize(case):
    case.check(adapters.run_standardize(**case.inputs))
