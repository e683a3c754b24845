"""What attention as a module and multi-head attention between two sequences promise, next to PyTorch's own."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cs336_basics.nn.attention_module import ScaledDotProductAttention
from cs336_basics.nn.functional import scaled_dot_product_attention
from cs336_basics.nn.multihead_attention import MultiHeadAttention
from cs336_basics.nn.torch_multihead import from_torch, to_torch
from staff.tests.solution.conftest import drawn


def mask_of(*shape: int) -> Tensor:
    """About half True, and the first key always: PyTorch gives NaN where a query may attend to nothing."""
    return (drawn(*shape) > 0) | (torch.arange(shape[-1]) == 0)


def test_what_the_module_returns() -> None:
    attention, (Q, K, V), mask = ScaledDotProductAttention(), drawn(3, 2, 4, 6), mask_of(4, 4)
    output, weights, scores = attention(Q, K, V, mask, return_weights=True, return_scores=True)
    assert torch.equal(attention(Q, K, V, mask), output)
    assert torch.equal(attention(Q, K, V, mask, return_weights=True)[1], weights)
    assert torch.equal(attention(Q, K, V, mask, return_scores=True)[1], scores)
    assert torch.equal(output, scaled_dot_product_attention(Q, K, V, mask))
    torch.testing.assert_close(weights, torch.softmax(scores, -1))
    assert (scores == -math.inf).equal(~mask.expand_as(scores))
    assert list(attention.parameters()) == []


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_module_in_half_precision(dtype: torch.dtype) -> None:
    Q, K, V = drawn(3, 2, 4, 8, dtype=dtype)
    output, weights, scores = ScaledDotProductAttention()(Q, K, V, return_weights=True, return_scores=True)
    assert torch.equal(output, scaled_dot_product_attention(Q, K, V))
    assert (weights.dtype, scores.dtype) == (dtype, torch.float32)


def pytorchs(bias: bool, dtype: torch.dtype = torch.float32) -> nn.MultiheadAttention:
    """12 features and 3 heads, with biases that are not zero."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(12, 3, bias=bias, batch_first=True, dtype=dtype)
    if bias:
        nn.init.normal_(theirs.in_proj_bias)
        nn.init.normal_(theirs.out_proj.bias)
    return theirs


@pytest.mark.parametrize("bias", [False, True])
def test_five_queries_on_seven_keys_next_to_torch(bias: bool) -> None:
    theirs, mask = pytorchs(bias), mask_of(2, 5, 7)
    sequences = [drawn(2, n, 12, dtype=torch.float32, seed=i) for i, n in enumerate((5, 7, 7))]
    answer, weights = from_torch(theirs)(*sequences, mask, return_weights=True)
    right, right_weights = theirs(*sequences, average_attn_weights=False, attn_mask=~mask.repeat_interleave(3, 0))
    torch.testing.assert_close(answer, right, rtol=0, atol=1e-5)
    torch.testing.assert_close(weights, right_weights, rtol=0, atol=1e-5)


@pytest.mark.parametrize("bias", [False, True])
def test_weights_come_back_from_torch_as_they_went(bias: bool) -> None:
    theirs = pytorchs(bias, torch.float64).eval()
    ours = from_torch(theirs)
    back = to_torch(ours)
    expected = {name: (x.dtype, x.tolist()) for name, x in theirs.state_dict().items()}
    assert {name: (x.dtype, x.tolist()) for name, x in back.state_dict().items()} == expected
    assert (back.num_heads, back.batch_first, back.training, ours.training) == (3, True, False, False)
    with torch.no_grad():
        ours.q_proj.weight.zero_()
    assert theirs.in_proj_weight.abs().min() > 0, "the weights are shared"
    assert to_torch(MultiHeadAttention(6, 2, dropout=0.5)).dropout == 0.5


@pytest.mark.parametrize("options", [{"kdim": 8}, {"vdim": 8}, {"add_bias_kv": True}, {"add_zero_attn": True}])
def test_a_module_of_torch_that_does_more_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="without kdim, vdim, add_bias_kv and add_zero_attn"):
        from_torch(nn.MultiheadAttention(12, 3, **options))


@pytest.mark.parametrize("shape", [(5, 7), (3, 7), (2, 7, 5), (4, 5, 7), (2, 2, 5, 7), (7,), (1, 2, 3, 5, 7)])
def test_a_mask_that_does_not_fit(shape: tuple[int, ...]) -> None:
    x, y = drawn(2, 5, 12, dtype=torch.float32), drawn(2, 7, 12, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"shape \(2, 7\), \(2, 5, 7\), \(2, 3, 5, 7\), or with 1 for a size, got \("):
        MultiHeadAttention(12, 3)(x, y, y, torch.ones(shape, dtype=torch.bool))


def test_a_batch_of_one_is_not_stretched_by_a_mask_of_queries_and_keys() -> None:
    x, y = drawn(1, 5, 12, dtype=torch.float32), drawn(1, 7, 12, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"expected a mask of shape \(1, 7\), .* got \(5, 7\)"):
        MultiHeadAttention(12, 3)(x, y, y, torch.ones(5, 7, dtype=torch.bool))


def test_a_sequence_that_is_all_padding_gives_the_bias_and_no_nan() -> None:
    attention = from_torch(pytorchs(True))
    x, y = drawn(2, 5, 12, dtype=torch.float32).requires_grad_(), drawn(2, 7, 12, dtype=torch.float32)
    answer = attention(x, y, y, torch.tensor([[False], [True]]).expand(2, 7))
    assert attention.biases is not None
    torch.testing.assert_close(answer[0], attention.biases[3].expand(5, 12))
    answer.square().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert x.grad[0].abs().max() == 0


def test_dropout_between_two_sequences() -> None:
    attention, x = MultiHeadAttention(12, 3, dropout=0.5), drawn(2, 9, 12, dtype=torch.float32)
    _, right = attention.eval()(x, x, x, return_weights=True)
    torch.manual_seed(0)
    _, weights = attention.train()(x, x, x, return_weights=True)
    kept = weights != 0
    assert 0 < kept.sum() < kept.numel()
    torch.testing.assert_close(weights[kept], 2 * right[kept])


def test_without_a_bias_there_are_four_weights() -> None:
    names = [name for name, _ in MultiHeadAttention(6, 2).named_parameters()]
    assert names == [f"{projection}_proj.weight" for projection in ("q", "k", "v", "output")]
