"""Attention between two sequences, hidden."""

import pytest

import adapters
from cs336_staff.hidden.drawn import drawn
from cs336_staff.problems.multihead_attention.cases import kinds


@pytest.mark.cases("multihead_attention/*")
def test_hidden_multihead_attention(case):
    case.check(adapters.run_multihead_attention(**case.inputs))


@drawn(kinds())
def test_multihead_attention_of_any_shape(case):
    case.check(adapters.run_multihead_attention(**case.inputs))
