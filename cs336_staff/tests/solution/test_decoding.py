"""The solution's decoding refuses sizes that do not fit, follows its input's device, and keeps no more than it says."""

import pytest
import torch

from cs336_basics.nn.decoding import GroupedQueryAttention
from cs336_basics.nn.rope import RotaryPositionalEmbedding


def made(d_model: int = 12, num_heads: int = 6, num_kv_heads: int = 2, window: int | None = None):
    torch.manual_seed(0)
    rope = RotaryPositionalEmbedding(100.0, 2, 20)
    return GroupedQueryAttention(d_model, num_heads, num_kv_heads, rope, window)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((12, 5, 1), "expected num_kv_heads to divide num_heads, and num_heads to divide d_model, got 1, 5 and 12"),
        ((12, 6, 4), "expected num_kv_heads to divide num_heads, and num_heads to divide d_model, got 4, 6 and 12"),
        ((12, 6, 2, 0), "expected a window of 1 or more, or None, got 0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        made(*sizes)


def test_another_device_is_followed() -> None:
    attention, x = made(window=2), torch.ones(3, 12)
    with torch.device("meta"):  # what is made without a device of its own is made there
        answer, _ = attention(x)
    assert answer.device.type == "cpu"


def test_the_cache_grows_by_one_row_of_the_heads_that_are_shared() -> None:
    """Nothing larger stays behind the tensors that are returned."""
    attention, x = made(), torch.ones(1, 12)
    _, cache = attention(x)
    for tokens in range(2, 6):
        _, cache = attention(x, cache)
        for kept in cache:
            assert kept.shape == (2, tokens, 2)
            assert kept.untyped_storage().nbytes() == 4 * 2 * tokens * 2
