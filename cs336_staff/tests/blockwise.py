"""What both blockwise attentions have to do, the solution's and the lab's: give what einsum attention gives."""

from collections.abc import Callable

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cs336_basics.nn.functional import scaled_dot_product_attention


def sizes_and_inputs(test: Callable[..., None]) -> Callable[..., None]:
    """Call the test with twelve draws of what `assert_as_einsum` takes."""
    drawn = given(
        sizes=st.tuples(*(st.integers(1, 40) for _ in range(2)), *(st.integers(1, 9) for _ in range(2))),
        block_size=st.none() | st.integers(1, 50),
        magnitude=st.sampled_from([1.0, 100.0]),
        seed=st.integers(0, 999),
    )
    return settings(max_examples=12, deadline=None, derandomize=True)(drawn(test))


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normal numbers, which are the same in every dtype up to rounding."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x.to(dtype).requires_grad_()


def drawn_mask(*shape: int, seed: int = 0) -> Tensor:
    """Half of it True, with stretches that are all True or all False, and a first row that sees nothing."""
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    rows, columns = shape[-2] // 2, shape[-1] // 2
    mask[..., :rows, :columns] = True
    mask[..., rows:, columns:] = False
    mask[..., 0, :] = False
    return mask


def assert_as_einsum(
    attention: Callable[..., Tensor],
    batches: tuple,
    sizes: tuple[int, int, int, int],
    block_size: int | None,
    magnitude: float,
    seed: int,
) -> None:
    """Compare output and gradients in float64.

    Args:
        attention: a blockwise attention.
        batches: the batch-like dimensions of queries, keys, values and mask; None for no mask.
        sizes: queries, keys, d_k and d_v.
        block_size: as `attention` takes it.
        magnitude: of the queries.
        seed: of everything that is drawn.
    """
    (queries, keys, d_k, d_v), (of_Q, of_K, of_V, of_mask) = sizes, batches
    Q, K, V = (
        drawn(*batch, *matrix, seed=seed + i)
        for i, (batch, matrix) in enumerate([(of_Q, (queries, d_k)), (of_K, (keys, d_k)), (of_V, (keys, d_v))])
    )
    mask = None if of_mask is None else drawn_mask(*of_mask, queries, keys, seed=seed)
    expected = scaled_dot_product_attention(magnitude * Q, K, V, mask)
    actual = attention(magnitude * Q, K, V, mask, block_size=block_size)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)
    cotangent = drawn(*expected.shape, seed=seed).detach()
    gradients, expected_gradients = (torch.autograd.grad(x, (Q, K, V), cotangent) for x in (actual, expected))
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-8, atol=1e-9 * magnitude)
