"""Blockwise attention, hidden."""

import pytest
import torch

import adapters
from cs336_staff.hidden.drawn import drawn
from cs336_staff.hidden.properties import is_same, with_memory
from cs336_staff.hidden.strategies import blockwises
from cs336_staff.sandbox.confinement import SandboxError

# What a worker may map for a long sequence, and how often the queries and the keys of a case come in it. The matrix of
# its 4,200 queries × 4,180 keys takes 67 MiB. With vectors of length 1 a block costs few operations but exponentials.
MEMORY = 64 << 20
TIMES = (600, 380)
BLOCK_SIZE = 400


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


@with_memory(MEMORY)
@pytest.mark.cases("blockwise/one-dimension")
def test_blockwise_attention_in_little_memory(case):
    """A query attends to each key as it does when every key is there once: the softmax is the same."""
    of_queries, of_keys = TIMES
    Q, K, V = case.Q.repeat(of_queries, 1), case.K.repeat(of_keys, 1), case.V.repeat(of_keys, 1)
    case.inputs.update(Q=Q, K=K, V=V, block_size=BLOCK_SIZE)
    try:
        answer = adapters.run_blockwise_attention(**case.inputs)
    except SandboxError:  # it is the grader's memory that has run out
        raise
    except BaseException as error:  # a worker that was killed for its memory raises no Exception
        if "memory" not in str(error):
            raise
        message = (
            f"{len(Q):,} queries and {len(K):,} keys take more memory than there is: is the matrix of all queries × "
            "keys held, or all of its blocks?"
        )
        raise AssertionError(message) from None
    right = case.expected["answer"].to(Q.dtype).repeat(of_queries, 1)
    message = "in a long sequence, in which every key is repeated, the answer is another"
    assert is_same(answer, right, tolerance=len(K) * torch.finfo(K.dtype).eps), message  # what so long a sum may lose


@pytest.mark.cases("blockwise/mask-per-head")
def test_blockwise_attention_has_no_side_effects(case):
    with case.unchanged_inputs():
        answer = adapters.run_blockwise_attention(**case.inputs)
        case.check(answer)
    again = adapters.run_blockwise_attention(**case.inputs)
    assert is_same(again, answer), "the same call gives another answer the second time"
