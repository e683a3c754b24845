"""Blockwise attention. You write it in cs336_basics/nn/blockwise.py, and its adapter."""

import pytest
import torch

import adapters


class LargestTensor(torch.overrides.TorchFunctionMode):
    """Notes how many numbers are in the largest tensor that your code makes."""

    numbers = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and not result._is_view():
            self.numbers = max(self.numbers, result.numel())
        return result


@pytest.mark.cases("blockwise/*")
def test_blockwise_attention(case):
    answer = adapters.run_blockwise_attention(Q=case.Q, K=case.K, V=case.V, mask=case.mask, block_size=case.block_size)
    case.check(answer)


@pytest.mark.cases("blockwise-last-digit/*")
def test_blockwise_attention_to_the_last_digit(case):
    answer = adapters.run_blockwise_attention(Q=case.Q, K=case.K, V=case.V, mask=case.mask, block_size=case.block_size)
    case.check_to_the_last_digit(answer)


@pytest.mark.cases("blockwise-gradients/*")
def test_blockwise_attention_gradients(case):
    case.require_gradients()
    answer = adapters.run_blockwise_attention(Q=case.Q, K=case.K, V=case.V, mask=case.mask, block_size=case.block_size)
    case.check_gradients(answer)


@pytest.mark.cases("blockwise/first-block-hidden")
def test_blockwise_attention_leaves_its_inputs_alone(case):
    with case.unchanged_inputs():
        adapters.run_blockwise_attention(Q=case.Q, K=case.K, V=case.V, mask=case.mask, block_size=case.block_size)


def test_blockwise_attention_holds_no_matrix():
    Q, K, V = torch.ones(110, 3), torch.ones(130, 3), torch.arange(260.0).view(130, 2)
    mean = V.double().mean(0).expand(110, 2)
    with LargestTensor() as largest:
        answer = adapters.run_blockwise_attention(Q, K, V, None, block_size=32)
    assert getattr(answer, "shape", None) == mean.shape, "expected a tensor with a row of V's width for each query"
    assert (answer.double() - mean).abs().max() < 1e-3, "all keys are the same: expected the mean of the values"
    assert largest.numbers < 110 * 130, (
        f"your code made a tensor of {largest.numbers} numbers, as many as 110 queries × 130 keys: "
        "which part of the scores does it need for one block?"
    )
