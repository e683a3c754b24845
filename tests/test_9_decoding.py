"""Decoding (bonus). You write `GroupedQueryAttention` in cs336_basics/nn/decoding.py, and its adapter."""

import pytest

import adapters
from problems.decoding.judge import decode_in_pieces


@pytest.mark.cases("decoding/*")
def test_decoding(case):
    case.check(adapters.run_decoding(**case.inputs))


@pytest.mark.cases("decoding-in-pieces/*")
def test_decoding_in_pieces(case):
    case.check(decode_in_pieces(case, adapters.run_decoding, [3, 1, 3]))
    case.check(decode_in_pieces(case, adapters.run_decoding, 1))


@pytest.mark.cases("decoding-gradients/*")
def test_decoding_gradients(case):
    case.require_gradients()
    case.check_gradients(adapters.run_decoding(**case.inputs))


@pytest.mark.cases("decoding/one-token")
def test_decoding_adds_one_row_to_the_cache(case):
    _, keys, values = case.parts(adapters.run_decoding(**case.inputs)).values()
    *batch, heads, past, d_k = case.keys.shape
    for name, kept in (("keys", keys), ("values", values)):
        shape, expected = tuple(getattr(kept, "shape", ())), (*batch, heads, past + 1, d_k)
        assert shape == expected, (
            f"the {name} in the cache had shape {tuple(case.keys.shape)}, and after one more token they have {shape}; "
            f"expected {expected}: one more row of {heads} heads"
        )


@pytest.mark.cases("decoding/several-tokens-window")
def test_decoding_leaves_its_inputs_alone(case):
    with case.unchanged_inputs():
        adapters.run_decoding(**case.inputs)
