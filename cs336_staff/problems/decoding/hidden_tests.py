"""Decoding, hidden."""

import pytest
import torch

import adapters
from cs336_staff.hidden.drawn import drawn
from cs336_staff.hidden.properties import assert_again, assert_right
from cs336_staff.problems.decoding.cases import kinds, kinds_without_a_cache


def decode(case, lengths):
    """All of the answer, and the last cache, when each piece goes into a call of its own."""
    answers, cache = [], {"keys": None, "values": None}
    for piece in case.in_features.split(lengths, dim=-2):
        came = adapters.run_decoding(**case.inputs | cache | {"in_features": piece})
        answer, *kept = case.parts(came).values()
        answers.append(answer)
        cache = dict(zip(cache, kept, strict=True))
    return torch.cat(answers, dim=-2), *cache.values()


@pytest.mark.cases("decoding/*")
def test_hidden_decoding(case):
    case.check(adapters.run_decoding(**case.inputs))


@pytest.mark.cases("decoding-in-pieces/*")
def test_hidden_decoding_in_pieces(case):
    case.check(decode(case, [4, 1, 5, 1]))


@pytest.mark.cases("decoding-gradients/*")
def test_hidden_decoding_gradients(case):
    case.require_gradients()
    case.check_gradients(adapters.run_decoding(**case.inputs))


@drawn(kinds())
def test_decoding_of_any_shape(case):
    case.check(adapters.run_decoding(**case.inputs))


@drawn(kinds_without_a_cache())
def test_decoding_token_by_token(case):
    assert_right(case, decode(case, 1), "the answer is wrong when each token goes into a call of its own")


@pytest.mark.cases("decoding/several-tokens-window")
def test_decoding_has_no_side_effects(case):
    with case.unchanged_inputs():
        answer = adapters.run_decoding(**case.inputs)
        case.check(answer)
    assert_again(case, adapters.run_decoding(**case.inputs)[0], answer[0])
