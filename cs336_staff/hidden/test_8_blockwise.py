"""Blockwise attention, hidden."""

import pytest
import torch

import adapters
from cs336_kit.engine.compare import WrongAnswer
from cs336_kit.engine.failure import Stopped, StudentRaised
from cs336_kit.engine.result import Check
from cs336_staff.hidden.drawn import drawn
from cs336_staff.hidden.properties import assert_again, assert_near
from cs336_staff.hidden.strategies import blockwises

# What a worker may map for a long sequence, and how often the queries and the keys of a case come in it. The matrix of
# its 4,200 queries × 4,180 keys takes 67 MiB. With vectors of length 1 a block costs few operations but exponentials.
MEMORY = 64 << 20
TIMES = (600, 380)
BLOCK_SIZE = 400


@pytest.mark.cases("blockwise/*")
def test_hidden_blockwise_attention(case):
    case.check(adapters.run_blockwise_attention(**case.inputs))


@pytest.mark.cases("blockwise-last-digit/*")
def test_hidden_blockwise_attention_to_the_last_digit(case):
    case.check_to_the_last_digit(adapters.run_blockwise_attention(**case.inputs))


@pytest.mark.cases("blockwise-gradients/*")
def test_hidden_blockwise_attention_gradients(case):
    case.require_gradients()
    case.check_gradients(adapters.run_blockwise_attention(**case.inputs))


@drawn(blockwises())
def test_blockwise_attention_of_any_shape(case):
    case.check(adapters.run_blockwise_attention(**case.inputs))


@pytest.mark.memory(MEMORY)
@pytest.mark.cases("blockwise/one-dimension")
def test_blockwise_attention_in_little_memory(case):
    """A query attends to each key as it does when every key is there once: the softmax is the same."""
    of_queries, of_keys = TIMES
    Q, K, V = case.Q.repeat(of_queries, 1), case.K.repeat(of_keys, 1), case.V.repeat(of_keys, 1)
    case.inputs.update(Q=Q, K=K, V=V, block_size=BLOCK_SIZE)
    try:
        answer = adapters.run_blockwise_attention(**case.inputs)
    except BaseException as error:  # a worker that was killed for its memory raises no Exception
        raised = isinstance(error, StudentRaised) and (error.type == "MemoryError" or "can't allocate" in error.message)
        if not raised and not (isinstance(error, Stopped) and "MiB of memory" in str(error)):
            raise
        message = (
            f"{len(Q):,} queries and {len(K):,} keys take more memory than there is: is the matrix of all queries × "
            "keys held, or all of its blocks?"
        )
        raise WrongAnswer(message, Check.CALL) from None
    right = case.expected["answer"].to(Q.dtype).repeat(of_queries, 1)
    # On top of what the short sequence may lose, the sums have as many terms as there are keys.
    bound = case.bound["answer"].repeat(of_queries, 1) + len(K) * torch.finfo(K.dtype).eps * V.abs().max()
    assert_near(answer, right, bound, "in a long sequence, in which every key is repeated, the answer is another")


@pytest.mark.cases("blockwise/mask-per-head")
def test_blockwise_attention_has_no_side_effects(case):
    with case.unchanged_inputs():
        answer = adapters.run_blockwise_attention(**case.inputs)
        case.check(answer)
    again = adapters.run_blockwise_attention(**case.inputs)
    assert_again(case, again, answer)
