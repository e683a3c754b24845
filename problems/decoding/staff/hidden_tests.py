"""Decoding, hidden."""

import pytest

import adapters
from problems.decoding.judge import decode_in_pieces
from problems.decoding.staff.cases import kinds, kinds_without_a_cache
from whichline_grader.author import again, assert_no_side_effects, assert_right, drawn, public_tests

public = public_tests("test_9_decoding.py")


test_hidden_decoding = again(public.test_decoding)
test_hidden_decoding_gradients = again(public.test_decoding_gradients)
test_decoding_of_any_shape = again(public.test_decoding, kinds())


@pytest.mark.cases("decoding-in-pieces/*")
def test_hidden_decoding_in_pieces(case):
    case.check(decode_in_pieces(case, adapters.run_decoding, [4, 1, 5, 1]))


@drawn(kinds_without_a_cache())
def test_decoding_token_by_token(case):
    answer = decode_in_pieces(case, adapters.run_decoding, 1)
    assert_right(case, answer, "the answer is wrong when each token goes into a call of its own")


@pytest.mark.cases("decoding/several-tokens-window")
def test_decoding_has_no_side_effects(case):
    assert_no_side_effects(case, lambda: adapters.run_decoding(**case.inputs))
