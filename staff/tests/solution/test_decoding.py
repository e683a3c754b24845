"""The solution's decoding follows its input's device, and keeps no more than it says."""

import torch

from cs336_basics.nn.decoding import GroupedQueryAttention
from cs336_basics.nn.rope import RotaryPositionalEmbedding


def make_attention(window: int | None = None) -> GroupedQueryAttention:
    torch.manual_seed(0)
    return GroupedQueryAttention(12, 6, 2, RotaryPositionalEmbedding(100.0, 2, 20), window)


def test_another_device_is_followed() -> None:
    attention, x = make_attention(window=2), torch.ones(3, 12)
    with torch.device("meta"):  # modules without a device of their own go there
        answer, _ = attention(x)
    assert answer.device.type == "cpu"


def test_the_cache_grows_by_one_row_of_the_heads_that_are_shared() -> None:
    """Nothing larger stays behind the tensors that are returned."""
    attention, x = make_attention(), torch.ones(1, 12)
    _, cache = attention(x)
    for tokens in range(2, 6):
        _, cache = attention(x, cache)
        for kept in cache:
            assert kept.shape == (2, tokens, 2)
            assert kept.untyped_storage().nbytes() == 4 * 2 * tokens * 2
