"""Blockwise attention. You write it in cs336_basics/nn/blockwise.py, and its adapter."""

import pytest
import torch

import adapters


class LargestTensor(torch.overrides.TorchFunctionMode):
    """Notes how many numbers are in the largest tensor that your code makes."""

    numbers = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.numel() > self.numbers and not result._is_view():
            self.numbers = result.numel()
        return result


@pytest.mark.cases("blockwise/*")
def test_blockwise_attention(case):
    case.check(adapters.run_blockwise_attention(**case.inputs))


@pytest.mark.cases("blockwise-last-digit/*")
def test_blockwise_attention_to_the_last_digit(case):
    case.check_to_the_last_digit(adapters.run_blockwise_attention(**case.inputs))


@pytest.mark.cases("blockwise-gradients/*")
def test_blockwise_attention_gradients(case):
    case.require_gradients()
    case.check_gradients(adapters.run_blockwise_attention(**case.inputs))


@pytest.mark.cases("blockwise/first-block-hidden")
def test_blockwise_attention_leaves_its_inputs_alone(case):
    with case.unchanged_inputs():
        adapters.run_blockwise_attention(**case.inputs)


@pytest.mark.memory(16 << 20)  # when it is graded; the matrix takes 34 MiB, and in half precision 17
def test_blockwise_attention_holds_no_matrix():
    """The keys are all vectors of eleven -1s and 1s, and so are the values: tanh(Q / √11) comes out, whatever Q is."""
    K = 2.0 * (torch.arange(2**11).unsqueeze(-1) >> torch.arange(11) & 1) - 1
    Q = torch.linspace(-3, 3, 4400 * 11).view(4400, 11)
    with LargestTensor() as largest:
        answer = adapters.run_blockwise_attention(Q, K, K.clone(), None, block_size=160)
    assert getattr(answer, "shape", None) == Q.shape, "expected a tensor with a row of V's width for each query"
    assert (answer.double() - torch.tanh(Q.double() / 11**0.5)).abs().max() < 1e-3, (
        "the values are the keys, all vectors of -1s and 1s: expected tanh(Q / √11)"
    )
    assert largest.numbers < len(Q) * len(K), (
        f"your code made a tensor of {largest.numbers:,} numbers, as many as {len(Q):,} queries × {len(K):,} keys: "
        "which part of the scores does it need for one block?"
    )
