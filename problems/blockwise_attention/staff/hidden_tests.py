"""Blockwise attention, hidden."""

import functools

import pytest
import torch
from torch import Tensor

import adapters
from problems.blockwise_attention.staff.cases import inputs as draw_inputs
from problems.blockwise_attention.staff.cases import kinds
from whichline.engine.case import Case
from whichline.engine.compare import WrongAnswer, check_shape
from whichline.engine.errors import Stopped, StudentRaised
from whichline.engine.result import Check
from whichline_grader.author import CaseSpec, Inputs, again, assert_no_side_effects, assert_right, public_tests
from whichline_grader.authoring.stored_cases import make_case
from whichline_grader.hidden.release import load_release

public = public_tests("test_8_blockwise.py")

# Memory for a long sequence. The matrix of all queries × keys takes 33 MiB, or 17 MiB in half precision; the solution
# takes less than 6 MiB. Vectors are short, so the exponentials take most of the time.
MEMORY = 16 << 20
QUERIES, KEYS = 4_200, 2_090
BLOCK_SIZE = 160  # small enough to hold the scores of all queries and one block of keys in a few tensors
ROWS = 64  # of the answer that are compared; the secret selects them


test_hidden_blockwise_attention = again(public.test_blockwise_attention)
test_hidden_blockwise_attention_to_the_last_digit = again(public.test_blockwise_attention_to_the_last_digit)
test_hidden_blockwise_attention_gradients = again(public.test_blockwise_attention_gradients)
test_blockwise_attention_of_any_shape = again(public.test_blockwise_attention, kinds())


@functools.cache
def draw_long_sequence() -> tuple[Inputs, Tensor, Case]:
    """Draw a long sequence, the indices of some queries, and a case with these queries only.

    All queries and keys differ, so computing repeated ones once saves no memory.
    """
    seed = load_release().seed("blockwise attention in little memory")
    draw = draw_inputs(queries=QUERIES, keys=KEYS, d_k=5, block_size=BLOCK_SIZE)
    inputs = draw(torch.Generator().manual_seed(seed))
    rows = torch.randperm(QUERIES, generator=torch.Generator().manual_seed(seed))[:ROWS]
    of_rows = CaseSpec("long", "run_blockwise_attention", lambda _: inputs | {"Q": inputs["Q"][rows]})
    return inputs, rows, make_case(of_rows, seed)


@pytest.mark.memory(MEMORY)
def test_blockwise_attention_in_little_memory():
    inputs, rows, case = draw_long_sequence()
    try:
        answer = adapters.run_blockwise_attention(**inputs)
    except BaseException as error:  # the error of a worker that was killed for its memory is no Exception
        raised = isinstance(error, StudentRaised) and (error.type == "MemoryError" or "can't allocate" in error.message)
        if not raised and not (isinstance(error, Stopped) and "MiB of memory" in str(error)):
            raise
        message = (
            f"{QUERIES:,} queries and {KEYS:,} keys take more memory than there is: is the matrix of all queries × "
            "keys held, or all of its blocks?"
        )
        raise WrongAnswer(message, Check.CALL) from None
    check_shape(answer, (QUERIES, inputs["V"].shape[-1]))
    assert_right(case, answer[rows], "the answer is wrong for a long sequence")


@pytest.mark.cases("blockwise/mask-per-head")
def test_blockwise_attention_has_no_side_effects(case):
    assert_no_side_effects(case, lambda: adapters.run_blockwise_attention(**case.inputs))
