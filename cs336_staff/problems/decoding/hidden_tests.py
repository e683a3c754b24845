"""Decoding, hidden."""

import pytest

import adapters
from cs336_kit.problems.decoding.judge import decode_in_pieces
from cs336_staff.hidden.drawn import drawn
from cs336_staff.hidden.properties import assert_again, assert_right
from cs336_staff.problems.decoding.cases import kinds, kinds_without_a_cache


@pytest.mark.cases("decoding/*")
def test_hidden_decoding(case):
    case.check(adapters.run_decoding(**case.inputs))


@pytest.mark.cases("decoding-in-pieces/*")
def test_hidden_decoding_in_pieces(case):
    case.check(decode_in_pieces(case, adapters.run_decoding, [4, 1, 5, 1]))


@pytest.mark.cases("decoding-gradients/*")
def test_hidden_decoding_gradients(case):
    case.require_gradients()
    case.check_gradients(adapters.run_decoding(**case.inputs))


@drawn(kinds())
def test_decoding_of_any_shape(case):
    case.check(adapters.run_decoding(**case.inputs))


@drawn(kinds_without_a_cache())
def test_decoding_token_by_token(case):
    answer = decode_in_pieces(case, adapters.run_decoding, 1)
    assert_right(case, answer, "the answer is wrong when each token goes into a call of its own")


@pytest.mark.cases("decoding/several-tokens-window")
def test_decoding_has_no_side_effects(case):
    with case.unchanged_inputs():
        answer = adapters.run_decoding(**case.inputs)
        case.check(answer)
    again = case.parts(adapters.run_decoding(**case.inputs))
    assert_again(case, again["answer"], case.parts(answer)["answer"])
