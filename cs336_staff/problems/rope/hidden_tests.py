"""Rotary position embedding, hidden."""

import pytest

import adapters
from cs336_staff.hidden.drawn import drawn
from cs336_staff.hidden.properties import assert_again, assert_near
from cs336_staff.problems.rope.cases import kinds


@pytest.mark.cases("rope/*")
def test_hidden_rope(case):
    case.check(adapters.run_rope(**case.inputs))


@pytest.mark.cases("rope/permuted")
def test_hidden_rope_to_the_last_digit(case):
    case.check_to_the_last_digit(adapters.run_rope(**case.inputs))


@pytest.mark.cases("rope-gradients/*")
def test_hidden_rope_gradients(case):
    case.require_gradients()
    case.check_gradients(adapters.run_rope(**case.inputs))


@drawn(kinds())
def test_rope_of_any_shape(case):
    case.check(adapters.run_rope(**case.inputs))


@drawn(kinds())
def test_rope_keeps_lengths(case):
    answer = adapters.run_rope(**case.inputs)
    case.check(answer)
    before, after = (x.double().norm(dim=-1) for x in (case.in_query_or_key, answer))
    tolerance = case.tolerance["answer"].norm(dim=-1)
    assert_near(after, before, tolerance, "a rotated vector is longer or shorter than before")


@pytest.mark.cases("rope/per-batch")
def test_rope_has_no_side_effects(case):
    with case.unchanged_inputs():
        answer = adapters.run_rope(**case.inputs)
        case.check(answer)
    assert_again(case, adapters.run_rope(**case.inputs), answer)
