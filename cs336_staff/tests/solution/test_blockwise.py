"""The solution's blockwise attention gives what scaled_dot_product_attention gives, in memory that grows linearly."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from cs336_basics.nn.blockwise import blockwise_attention
from cs336_basics.nn.functional import scaled_dot_product_attention

# The batch-like dimensions of queries, keys, values and mask (None: no mask).
BATCHES = [
    ((), (), (), None),
    ((2, 3), (2, 3), (2, 3), ()),
    ((2, 2, 3), (2, 2, 1), (2, 2, 1), (2, 1, 1)),  # grouped queries
    ((2, 3), (3,), (1, 3), (2, 1)),
    ((), (), (), (2, 3)),
]


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


@pytest.mark.parametrize("batches", BATCHES, ids=str)
@settings(max_examples=4, deadline=None, derandomize=True)
@given(
    sizes=st.tuples(*(st.integers(1, 12) for _ in range(2)), *(st.integers(1, 9) for _ in range(2))),
    block_size=st.none() | st.integers(1, 15),
    magnitude=st.sampled_from([1.0, 100.0]),
    seed=st.integers(0, 999),
)
def test_results_and_gradients_are_those_of_einsum_attention(
    batches: tuple, sizes: tuple[int, int, int, int], block_size: int | None, magnitude: float, seed: int
) -> None:
    (queries, keys, d_k, d_v), (of_Q, of_K, of_V, of_mask) = sizes, batches
    Q, K, V = (
        drawn(*batch, *matrix, seed=seed + i)
        for i, (batch, matrix) in enumerate([(of_Q, (queries, d_k)), (of_K, (keys, d_k)), (of_V, (keys, d_v))])
    )
    mask = None if of_mask is None else drawn_mask(*of_mask, queries, keys, seed=seed)
    expected = scaled_dot_product_attention(magnitude * Q, K, V, mask)
    actual = blockwise_attention(magnitude * Q, K, V, mask, block_size=block_size)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)
    cotangent = drawn(*expected.shape, seed=seed).detach()
    gradients, expected_gradients = (torch.autograd.grad(x, (Q, K, V), cotangent) for x in (actual, expected))
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-8, atol=1e-9 * magnitude)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 2e-3), (torch.bfloat16, 1.6e-2)])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype, tolerance: float) -> None:
    Q, K, V = (drawn(2, 300, 8, seed=i, dtype=dtype) for i in range(3))
    mask = torch.ones(300, 300).tril().bool()
    actual = blockwise_attention(Q, K, V, mask, block_size=64)
    exact = scaled_dot_product_attention(Q.double(), K.double(), V.double(), mask)
    assert actual.dtype == dtype
    torch.testing.assert_close(actual.double(), exact, rtol=tolerance, atol=tolerance)
    gradients, expected = (torch.autograd.grad(x.sum(), (Q, K, V)) for x in (actual, exact))
    torch.testing.assert_close(gradients, expected, rtol=tolerance, atol=4 * tolerance)


def test_large_logits_and_hidden_blocks_stay_finite() -> None:
    Q, K, V = drawn(9, 4, dtype=torch.float32), drawn(9, 4, seed=1, dtype=torch.float32), drawn(9, 4).float()
    mask = torch.ones(9, 9).triu(4).bool()  # the first block of keys is hidden, and all keys from the last queries
    actual = blockwise_attention(1e18 * Q, 1e18 * K, V, mask, block_size=4)
    torch.testing.assert_close(actual, scaled_dot_product_attention(1e18 * Q, 1e18 * K, V, mask))
    assert not actual[5:].any()
    assert all(x.isfinite().all() for x in torch.autograd.grad(blockwise_attention(Q, K, V, mask).sum(), (Q, K, V)))


def test_nan_in_a_visible_key_is_not_swallowed() -> None:
    Q, K, V = (drawn(6, 4, seed=i).detach() for i in range(3))
    K[2] = math.nan
    output = blockwise_attention(Q, K, V, torch.ones(6, 6).tril().bool(), block_size=2)
    assert torch.equal(output.isnan().all(-1), torch.arange(6) >= 2)


@pytest.mark.parametrize(
    "shapes", [((0, 4), (3, 4), (3, 5)), ((3, 4), (0, 4), (0, 5)), ((3, 4), (3, 4), (3, 0))], ids=str
)
@pytest.mark.parametrize("batch", [(), (0,), (2,)], ids=str)
def test_empty_sizes(shapes: tuple, batch: tuple) -> None:
    Q, K, V = (drawn(*batch, *shape) for shape in shapes)
    output = blockwise_attention(Q, K, V)
    assert output.shape == (*batch, shapes[0][0], shapes[2][1])
    assert not output.any()
    assert not any(x.any() for x in torch.autograd.grad(output.sum(), (Q, K, V)))


class LargestTensor(TorchDispatchMode):
    """Notes the bytes of the largest tensor that is made, in the backward pass too."""

    bytes = 0

    def __torch_dispatch__(self, function: Callable, types: object, args: tuple = (), kwargs: dict | None = None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.bytes = max(self.bytes, result.untyped_storage().nbytes())
        return result


def test_neither_pass_makes_a_matrix_nor_is_one_kept_between_them() -> None:
    Q, K, V = (drawn(2, 96, 4, seed=i) for i in range(3))
    kept = []
    with LargestTensor() as largest, saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        blockwise_attention(Q, K, V, block_size=16).sum().backward()
    assert largest.bytes == Q.nbytes
    assert sum(x.untyped_storage().nbytes() for x in kept) < 5 * Q.nbytes


X = torch.ones(3, 4)


def test_another_device_is_followed_without_a_mask() -> None:
    assert blockwise_attention(*(x.to("meta") for x in (X, X, X))).device.type == "meta"


def test_a_block_size_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a block_size of 1 or more, or None, got 0"):
        blockwise_attention(X, X, X, block_size=0)


def test_a_second_derivative_is_refused() -> None:
    Q, K, V = (drawn(4, 3, seed=i) for i in range(3))
    with pytest.raises(
        RuntimeError, match=r"^expected one derivative; for a second one use scaled_dot_product_attention$"
    ):
        torch.autograd.grad(blockwise_attention(Q, K, V).sum(), Q, create_graph=True)


def test_a_mask_that_changes_before_the_backward_pass_is_an_error() -> None:
    Q, K, V, mask = *(drawn(4, 3, seed=i) for i in range(3)), torch.ones(4, 4).bool()
    output = blockwise_attention(Q, K, V, mask)
    mask[2] = False
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()
