"""Blockwise attention, hidden."""

import pytest
import torch

import adapters
from cs336_staff.hidden.drawn import drawn
from cs336_staff.hidden.properties import assert_same
from cs336_staff.hidden.strategies import blockwises

# How often the queries and the keys of a case come in a long sequence: the matrix of its 16,800 queries × 33,000 keys
# takes 2.2 GB, more than a worker gets. With vectors of length 1 a block costs little more than its exponentials.
TIMES = (2400, 3000)


@pytest.mark.cases("blockwise/*")
def test_hidden_blockwise_attention(case):
    case.check(adapters.run_blockwise_attention(**case.inputs))


@pytest.mark.cases("blockwise-gradients/*")
def test_hidden_blockwise_attention_gradients(case):
    case.require_gradients()
    case.check_gradients(adapters.run_blockwise_attention(**case.inputs))


@drawn(blockwises())
def test_blockwise_attention_of_any_shape(case):
    case.check(adapters.run_blockwise_attention(**case.inputs))


@pytest.mark.cases("blockwise/one-dimension")
def test_blockwise_attention_in_little_memory(case):
    """A query attends to each key as it does when every key is there once: the softmax is the same."""
    of_queries, of_keys = TIMES
    Q, K, V = case.Q.repeat(of_queries, 1), case.K.repeat(of_keys, 1), case.V.repeat(of_keys, 1)
    try:
        answer = adapters.run_blockwise_attention(Q, K, V, None, block_size=512)
    except BaseException as error:  # a worker that was killed for its memory raises no Exception
        if "memory" not in str(error):
            raise
        message = (
            f"a sequence of {len(Q)} queries and {len(K)} keys takes more memory than there is: is a matrix of all "
            "queries × keys held, or all blocks at once?"
        )
        raise AssertionError(message) from None
    right = case.expected["answer"].to(Q.dtype).repeat(of_queries, 1)
    assert_same(answer, right, "in a long sequence, in which every key is repeated, the answer is another")


@pytest.mark.cases("blockwise/mask-per-head")
def test_blockwise_attention_has_no_side_effects(case):
    before = {name: x.clone() for name, x in case.inputs.items() if isinstance(x, torch.Tensor)}
    answer = adapters.run_blockwise_attention(**case.inputs)
    case.check(answer)
    for name, x in before.items():
        assert torch.equal(case.inputs[name], x), (
            f"blockwise attention changed {name}: an operation in place, such as {name} /= ..."
        )
    again = adapters.run_blockwise_attention(**case.inputs)
    assert_same(again, answer, "the same call gives another answer the second time")
