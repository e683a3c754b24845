"""Rotary position embedding, hidden."""

import pytest

import adapters
from cs336_staff.hidden.drawn import drawn
from cs336_staff.hidden.properties import is_same
from cs336_staff.hidden.strategies import ropes


@pytest.mark.cases("rope/*")
def test_hidden_rope(case):
    case.check(adapters.run_rope(**case.inputs))


@drawn(ropes())
def test_rope_of_any_shape(case):
    case.check(adapters.run_rope(**case.inputs))


@drawn(ropes(positions=("spaced",)))
def test_rope_keeps_lengths(case):
    answer = adapters.run_rope(**case.inputs)
    case.check(answer)
    lengths = case.in_query_or_key.norm(dim=-1)
    assert is_same(answer.norm(dim=-1), lengths), "a rotated vector is longer or shorter than before"
