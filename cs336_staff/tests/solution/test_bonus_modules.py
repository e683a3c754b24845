"""What attention as a module and multi-head attention between two sequences promise, next to PyTorch's own."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention as attention_of_torch

from cs336_basics.nn.attention_module import ScaledDotProductAttention
from cs336_basics.nn.functional import scaled_dot_product_attention
from cs336_basics.nn.multihead_attention import MultiHeadAttention
from cs336_basics.nn.torch_multihead import from_torch, to_torch
from cs336_staff.tests.solution.conftest import drawn

SEEDS = (0, 1)


def mask_of(*shape: int, seed: int = 0) -> Tensor:
    """About half True, and the first key always: PyTorch gives NaN where a query may attend to nothing."""
    return (drawn(*shape, seed=seed) > 0) | (torch.arange(shape[-1]) == 0)


def assert_close(answer: Tensor, right: Tensor, within: float) -> None:
    torch.testing.assert_close(answer, right, rtol=0, atol=within)


def gradient_of(x: Tensor | None) -> Tensor:
    assert x is not None
    assert x.grad is not None
    return x.grad


# ScaledDotProductAttention


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("batch", [(3,), (2, 3)])
def test_the_module_next_to_torch(seed: int, batch: tuple[int, ...]) -> None:
    shapes = ((5, 8), (7, 8), (7, 6))
    Q, K, V = (drawn(*batch, *shapes[i], dtype=torch.float32, seed=3 * seed + i).requires_grad_() for i in range(3))
    mask = mask_of(2, 1, 1, 7, seed=seed) if len(batch) == 2 and seed % 2 else mask_of(5, 7, seed=seed)
    cotangent = drawn(*batch, 5, 6, dtype=torch.float32, seed=seed)
    ours, theirs = ScaledDotProductAttention()(Q, K, V, mask), attention_of_torch(Q, K, V, mask)
    assert_close(ours, theirs, 1e-5)
    for a, b in zip(*(torch.autograd.grad(x, (Q, K, V), cotangent) for x in (ours, theirs)), strict=True):
        assert_close(a, b, 1e-4)


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


def test_dropout_is_for_training_and_follows_the_seed() -> None:
    attention, (Q, K, V) = ScaledDotProductAttention(0.25), drawn(3, 8, 40, 40)
    _, right = attention.eval()(Q, K, V, return_weights=True)
    assert torch.equal(right, ScaledDotProductAttention().train()(Q, K, V, return_weights=True)[1])

    def weights(seed: int) -> Tensor:
        torch.manual_seed(seed)
        output, weights = attention.train()(Q, K, V, return_weights=True)
        torch.testing.assert_close(output, weights @ V)
        return weights

    kept = weights(0) != 0
    torch.testing.assert_close(weights(0)[kept], right[kept] / 0.75)
    # 12,800 weights: the share has a standard deviation of 0.4 %.
    assert float(kept.double().mean()) == pytest.approx(0.75, abs=0.02)
    assert torch.equal(weights(0), weights(0))
    assert not torch.equal(weights(0), weights(1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_module_in_half_precision(dtype: torch.dtype) -> None:
    Q, K, V = drawn(3, 2, 4, 8, dtype=dtype)
    output, weights, scores = ScaledDotProductAttention()(Q, K, V, return_weights=True, return_scores=True)
    assert torch.equal(output, scaled_dot_product_attention(Q, K, V))
    assert (weights.dtype, scores.dtype) == (dtype, torch.float32)


@pytest.mark.parametrize("dropout", [-0.1, 1.0, math.nan])
def test_a_dropout_that_is_no_probability(dropout: float) -> None:
    with pytest.raises(ValueError, match=f"dropout of at least 0 and below 1, got {dropout}"):
        ScaledDotProductAttention(dropout)


# MultiHeadAttention


def pytorchs(bias: bool, seed: int, dtype: torch.dtype = torch.float32) -> nn.MultiheadAttention:
    """12 features and 3 heads, with biases that are not zero."""
    torch.manual_seed(seed)
    theirs = nn.MultiheadAttention(12, 3, bias=bias, batch_first=True, dtype=dtype)
    if bias:
        nn.init.normal_(theirs.in_proj_bias)
        nn.init.normal_(theirs.out_proj.bias)
    return theirs


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", ["none", "padding", "full", "per head"])
def test_five_queries_on_seven_keys_next_to_torch(seed: int, bias: bool, kind: str) -> None:
    theirs = pytorchs(bias, seed)
    ours = from_torch(theirs)
    sequences = [
        drawn(2, n, 12, dtype=torch.float32, seed=3 * seed + i).requires_grad_() for i, n in enumerate((5, 7, 7))
    ]
    mask = {
        "none": None,
        "padding": mask_of(2, 7, seed=seed),
        "full": mask_of(2, 5, 7, seed=seed),
        "per head": mask_of(2, 3, 5, 7, seed=seed),
    }[kind]
    hidden: dict[str, Tensor] = {}
    if mask is not None and kind == "padding":
        hidden["key_padding_mask"] = ~mask
    elif mask is not None:
        for_heads = mask if mask.ndim == 4 else mask.unsqueeze(1).expand(2, 3, 5, 7)
        hidden["attn_mask"] = ~for_heads.flatten(0, 1)
    answer, weights = ours(*sequences, mask, return_weights=True)
    right, right_weights = theirs(*sequences, average_attn_weights=False, **hidden)
    assert_close(answer, right, 1e-5)
    assert_close(weights, right_weights, 1e-5)

    cotangent = drawn(2, 5, 12, dtype=torch.float32, seed=seed)
    answer.backward(cotangent)
    gradients = [gradient_of(x) for x in sequences]
    for x in sequences:
        x.grad = None
    right.backward(cotangent)
    for x, gradient in zip(sequences, gradients, strict=True):
        assert_close(gradient, gradient_of(x), 1e-4)
    of_weights = torch.cat([gradient_of(projection.weight) for projection in (ours.q_proj, ours.k_proj, ours.v_proj)])
    assert_close(of_weights, gradient_of(theirs.in_proj_weight), 1e-4)
    assert_close(gradient_of(ours.output_proj.weight), gradient_of(theirs.out_proj.weight), 1e-4)
    if bias:
        of_biases = torch.cat((gradient_of(theirs.in_proj_bias), gradient_of(theirs.out_proj.bias))).view(4, 12)
        assert_close(gradient_of(ours.biases), of_biases, 1e-4)


@pytest.mark.parametrize("bias", [False, True])
def test_weights_come_back_from_torch_as_they_went(bias: bool) -> None:
    theirs = pytorchs(bias, 0, torch.float64).eval()
    ours = from_torch(theirs)
    back = to_torch(ours)
    assert {name: (x.dtype, x.tolist()) for name, x in back.state_dict().items()} == {
        name: (x.dtype, x.tolist()) for name, x in theirs.state_dict().items()
    }
    assert (back.num_heads, back.batch_first, back.training, ours.training) == (3, True, False, False)
    with torch.no_grad():
        ours.q_proj.weight.zero_()
    assert theirs.in_proj_weight.abs().min() > 0, "the weights are shared"
    assert to_torch(MultiHeadAttention(6, 2, dropout=0.5)).dropout == 0.5


@pytest.mark.parametrize("options", [{"kdim": 8}, {"vdim": 8}, {"add_bias_kv": True}, {"add_zero_attn": True}])
def test_a_module_of_torch_that_does_more_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="without kdim, vdim, add_bias_kv and add_zero_attn"):
        from_torch(nn.MultiheadAttention(12, 3, **options))


def test_masks_of_every_kind_agree() -> None:
    attention, padding = MultiHeadAttention(12, 3), mask_of(2, 7)
    sequences = [drawn(2, n, 12, dtype=torch.float32, seed=n) for n in (5, 7, 7)]
    right = attention(*sequences, padding)
    for mask in (padding[:, None], padding[:, None].expand(2, 5, 7), padding[:, None, None].expand(2, 3, 1, 7)):
        torch.testing.assert_close(attention(*sequences, mask), right)
    alone = attention(*(x[1] for x in sequences), padding[1])
    torch.testing.assert_close(alone, right[1])
    torch.testing.assert_close(attention(*(x[1] for x in sequences), padding[1].expand(5, 7)), alone)


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
    attention = from_torch(pytorchs(True, 0))
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
    right, right_weights = attention.eval()(x, x, x, return_weights=True)
    torch.manual_seed(0)
    answer, weights = attention.train()(x, x, x, return_weights=True)
    assert not torch.allclose(answer, right)
    kept = weights != 0
    assert 0 < kept.sum() < kept.numel()
    torch.testing.assert_close(weights[kept], 2 * right_weights[kept])


def test_without_a_bias_there_are_four_weights() -> None:
    names = [name for name, _ in MultiHeadAttention(6, 2).named_parameters()]
    assert names == [f"{projection}_proj.weight" for projection in ("q", "k", "v", "output")]
