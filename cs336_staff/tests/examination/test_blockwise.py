"""What the examination says of blockwise attention."""

import torch
from torch.autograd import Function

from cs336_kit.problems.blockwise_attention.examination import examine_blockwise
from cs336_staff.authoring.programs import wrong_submission
from cs336_staff.problems.blockwise_attention import programs
from cs336_staff.problems.scaled_dot_product_attention.programs import attention


def test_a_mistake_of_attention_is_told_as_that():
    (found,) = examine_blockwise(wrong_submission("blockwise-no-scale")["run_blockwise_attention"])
    assert (found.id, found.section) == ("attention-scale-missing", "3 Attention")


class ByHand(Function):
    """Attention whose scores are not scaled, with a right backward pass."""

    @staticmethod
    def forward(ctx, Q, K, V, mask, size):
        weights = torch.softmax((Q @ K.mT).masked_fill(~mask, -torch.inf), -1).nan_to_num(0.0)
        ctx.save_for_backward(Q, K, V, weights)
        return programs.blockwise(Q * Q.shape[-1] ** 0.5, K, V, mask, size)

    @staticmethod
    def backward(ctx, *grad_outputs):
        (dO,) = grad_outputs
        Q, K, V, W = ctx.saved_tensors
        dW = dO @ V.mT
        dS = W * (dW - (dW * W).sum(-1, keepdim=True)) / Q.shape[-1] ** 0.5
        gradients = (dS @ K, dS.mT @ Q, W.mT @ dO)
        return *(g.sum_to_size(x.shape) for g, x in zip(gradients, (Q, K, V), strict=True)), None, None


def test_a_backward_pass_that_is_right_once_the_scores_are_is_not_accused():
    def run(Q, K, V, mask=None, block_size=None):
        mask = torch.ones(Q.shape[-2], K.shape[-2], dtype=torch.bool) if mask is None else mask
        q, k, v = (x.float() if x.dtype.itemsize == 2 else x for x in (Q, K, V))
        return ByHand.apply(q, k, v, mask, block_size).to(Q.dtype)

    ids = [found.id for found in examine_blockwise(run)]
    assert ids == ["attention-scale-missing", "blockwise-holds-matrix"]


def test_a_matrix_that_is_held_is_found():
    findings = examine_blockwise(lambda Q, K, V, mask=None, block_size=None: attention(Q, K, V, mask))
    (found,) = (f for f in findings if f.id == "blockwise-holds-matrix")
    assert "makes a tensor of 4,200 numbers; one block has 64 scores," in found.measured


def test_blocks_that_change_something_else_are_found():
    def run(Q, K, V, mask=None, block_size=None):
        answer = programs.blockwise(Q, K, V, mask, block_size)
        return answer * 0.9 if block_size == 3 else answer

    (found,) = (f for f in examine_blockwise(run) if f.id == "blockwise-blocks-differ")
    assert found.measured.startswith("With block_size=3 your answer differs by up to 0.0723 from that in one block")
