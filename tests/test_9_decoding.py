"""Decoding (bonus). You write `GroupedQueryAttention` in cs336_basics/nn/decoding.py, and its adapter."""

import pytest
import torch

import adapters


@pytest.mark.cases("decoding/*")
def test_decoding(case):
    case.check(adapters.run_decoding(**case.inputs))


@pytest.mark.cases("decoding-in-pieces/*")
def test_decoding_in_pieces(case):
    """Each piece goes into a call of its own, with the cache that the call before returned."""
    for lengths in ([3, 1, 3], [1] * 7):
        answers, cache = [], {"keys": None, "values": None}
        for piece in case.in_features.split(lengths, dim=-2):
            answer, keys, values = adapters.run_decoding(**case.inputs | cache | {"in_features": piece})
            answers.append(answer)
            cache = {"keys": keys, "values": values}
        case.check((torch.cat(answers, dim=-2), keys, values))


@pytest.mark.cases("decoding-gradients/*")
def test_decoding_gradients(case):
    case.require_gradients()
    case.check_gradients(adapters.run_decoding(**case.inputs))


@pytest.mark.cases("decoding/one-token")
def test_decoding_adds_one_row_to_the_cache(case):
    _, *cache = adapters.run_decoding(**case.inputs)
    for name, before, after in zip(("keys", "values"), (case.keys, case.values), cache, strict=True):
        heads, rows = after.shape[-3:-1]
        assert (heads, rows) == (case.num_kv_heads, before.shape[-2] + 1), (
            f"after one more token the cache has {rows} rows of {heads} heads for the {name}, expected "
            f"{before.shape[-2] + 1} rows of {case.num_kv_heads} heads"
        )


@pytest.mark.cases("decoding/several-tokens-window")
def test_decoding_leaves_its_inputs_alone(case):
    with case.unchanged_inputs():
        adapters.run_decoding(**case.inputs)
