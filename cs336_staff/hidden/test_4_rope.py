"""Rotary position embedding, hidden."""

import pytest

import adapters
from cs336_staff.hidden.drawn import drawn
from cs336_staff.hidden.properties import assert_near
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
    before, after = (x.double().norm(dim=-1) for x in (case.in_query_or_key, answer))
    bound = case.bound["answer"].norm(dim=-1)
    assert_near(after, before, bound, "a rotated vector is longer or shorter than before")
