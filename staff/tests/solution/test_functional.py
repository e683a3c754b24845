"""What the docstrings of cs336_basics/nn/functional.py promise, beyond what is asked of students."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cs336_basics.nn.attention_module import ScaledDotProductAttention
from cs336_basics.nn.blockwise import blockwise_attention
from cs336_basics.nn.functional import (
    attention_weights,
    rotary_position_embedding,
    scaled_dot_product_attention,
    softmax,
)
from staff.tests.solution.conftest import drawn

Q23, K43, V45, M24 = torch.zeros(2, 3), torch.zeros(4, 3), torch.zeros(4, 5), torch.ones(2, 4)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
@pytest.mark.parametrize("dim", [0, -1])
def test_empty_tensors_stay_empty(shape: tuple[int, ...], dim: int) -> None:
    answer = softmax(torch.zeros(shape, requires_grad=True), dim)
    assert answer.shape == shape
    assert answer.requires_grad


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_infinity_and_nan_propagate_in_their_slice_alone(bad: float) -> None:
    answer = softmax(torch.tensor([[bad, 0.0], [1.0, 1.0]]), -1)
    assert answer[0].isnan().any()
    assert answer[1].tolist() == [0.5, 0.5]


def test_attention_averages_with_its_own_weights() -> None:
    Q, K, mask = drawn(2, 5, 11), drawn(2, 7, 11, seed=1), drawn(5, 7, seed=3) > 0
    identity = torch.eye(7, dtype=torch.float64).expand(2, 7, 7)
    assert torch.equal(scaled_dot_product_attention(Q, K, identity, mask), attention_weights(Q, K, mask))


def test_no_keys_give_zeros_and_no_queries_nothing() -> None:
    zeros = [[[0.0] * 4] * 5] * 2
    assert scaled_dot_product_attention(drawn(2, 5, 3), drawn(2, 0, 3), drawn(2, 0, 4)).tolist() == zeros
    assert scaled_dot_product_attention(drawn(2, 0, 3), drawn(2, 5, 3), drawn(2, 5, 4)).shape == (2, 0, 4)
    assert scaled_dot_product_attention(drawn(0, 5, 3), drawn(0, 5, 3), drawn(0, 5, 4)).shape == (0, 5, 4)


@pytest.mark.usefixtures("without_types")
@pytest.mark.parametrize("attend", [scaled_dot_product_attention, blockwise_attention, ScaledDotProductAttention()])
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((Q23, torch.zeros(4, 2), V45), ValueError, r"the same d_k, got Q \(2, 3\), K \(4, 2\), V \(4, 5\)"),
        ((Q23, K43, torch.zeros(3, 5)), ValueError, r"the same keys, got Q \(2, 3\), K \(4, 3\), V \(3, 5\)"),
        ((torch.zeros(3), K43, V45), ValueError, r"at least two dimensions, got Q \(3,\)"),
        ((Q23, K43, V45, torch.ones(4, dtype=torch.bool)), ValueError, r"at least two dimensions.* mask \(4,\)"),
        ((Q23, K43, V45, torch.ones(4, 2) > 0), ValueError, r"to .* = \(2, 4\), got .* V \(4, 5\), mask \(4, 2\)"),
        ((Q23, K43, V45, M24), TypeError, r"boolean mask \(True = may attend\), got torch.float32; .*\.bool"),
        ((Q23, K43.double(), V45), TypeError, r"one dtype, got Q torch.float32, K torch.float64, V torch.float32"),
        ((Q23, K43.to("meta"), V45), ValueError, r"one device, got Q cpu, K meta, V cpu; move them"),
        ((torch.zeros(2, 2, 3), torch.zeros(3, 4, 3), V45), ValueError, r"leading dimensions that broadcast"),
    ],
)
def test_wrong_arguments_are_named(
    attend: Callable[..., Tensor], arguments: tuple[Tensor, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        attend(*arguments)


@pytest.mark.usefixtures("without_types")
def test_wrong_arguments_of_the_weights_are_named() -> None:
    with pytest.raises(TypeError, match="expected a boolean mask"):
        attention_weights(Q23, K43, torch.ones(2, 4))
    with pytest.raises(ValueError, match=r"the same d_k, got Q \(2, 3\), K \(4, 2\)$"):
        attention_weights(Q23, torch.zeros(4, 2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_and_rotated_vectors_have_the_dtype_of_what_they_are_made_from(dtype: torch.dtype) -> None:
    assert attention_weights(drawn(2, 3, dtype=dtype), drawn(4, 3, dtype=dtype)).dtype == dtype
    angles = drawn(3, 2, dtype=torch.float32)
    assert rotary_position_embedding(drawn(3, 4, dtype=dtype), angles.cos(), angles.sin()).dtype == dtype
