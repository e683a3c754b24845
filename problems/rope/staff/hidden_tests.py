"""Rotary position embedding, hidden."""

import pytest

import adapters
from problems.rope.staff.cases import kinds
from whichline_grader.author import again, assert_near, assert_no_side_effects, drawn, public_tests

public = public_tests("test_4_rope.py")


test_hidden_rope = again(public.test_rope)
test_hidden_rope_to_the_last_digit = pytest.mark.cases("rope/permuted")(again(public.test_rope_to_the_last_digit))
test_hidden_rope_gradients = again(public.test_rope_gradients)
test_rope_of_any_shape = again(public.test_rope, kinds())


@drawn(kinds())
def test_rope_keeps_lengths(case):
    answer = adapters.run_rope(**case.inputs)
    case.check(answer)
    before, after = (x.double().norm(dim=-1) for x in (case.in_query_or_key, answer))
    tolerance = case.tolerance["answer"].norm(dim=-1)
    assert_near(after, before, tolerance, "a rotated vector is longer or shorter than before")


@pytest.mark.cases("rope/per-batch")
def test_rope_has_no_side_effects(case):
    assert_no_side_effects(case, lambda: adapters.run_rope(**case.inputs))
