"""What the docstring of cs336_basics/nn/blockwise.py promises, beyond what is asked of students."""

import math

import pytest
import torch

from cs336_basics.nn.blockwise import blockwise_attention
from staff.tests.solution.conftest import drawn

X = torch.ones(3, 4)


def test_nan_in_a_visible_key_is_not_swallowed() -> None:
    Q, K, V = (drawn(6, 4, seed=i) for i in range(3))
    K[2] = math.nan
    output = blockwise_attention(Q, K, V, torch.ones(6, 6).tril().bool(), block_size=2)
    assert torch.equal(output.isnan().all(-1), torch.arange(6) >= 2)


@pytest.mark.parametrize("shapes", [((0, 4), (3, 4), (3, 5)), ((3, 4), (0, 4), (0, 5)), ((3, 4), (3, 4), (3, 0))])
@pytest.mark.parametrize("batch", [(), (0,), (2,)], ids=str)
def test_empty_sizes(shapes: tuple, batch: tuple) -> None:
    Q, K, V = (drawn(*batch, *shape).requires_grad_() for shape in shapes)
    output = blockwise_attention(Q, K, V)
    assert output.shape == (*batch, shapes[0][0], shapes[2][1])
    assert not output.any()
    assert not any(x.any() for x in torch.autograd.grad(output.sum(), (Q, K, V)))


def test_another_device_is_followed_without_a_mask() -> None:
    assert blockwise_attention(*(x.to("meta") for x in (X, X, X))).device.type == "meta"


def test_a_block_size_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a block_size of 1 or more, or None, got 0"):
        blockwise_attention(X, X, X, block_size=0)


def test_a_second_derivative_is_refused() -> None:
    Q, K, V = (drawn(4, 3, seed=i).requires_grad_() for i in range(3))
    message = "^expected one derivative; for a second one use scaled_dot_product_attention$"
    with pytest.raises(RuntimeError, match=message):
        torch.autograd.grad(blockwise_attention(Q, K, V).sum(), Q, create_graph=True)


def test_a_mask_that_changes_before_the_backward_pass_is_an_error() -> None:
    Q, K, V, mask = *(drawn(4, 3, seed=i).requires_grad_() for i in range(3)), torch.ones(4, 4).bool()
    output = blockwise_attention(Q, K, V, mask)
    mask[2] = False
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()
