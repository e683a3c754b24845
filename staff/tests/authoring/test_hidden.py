"""The hidden suite: each of its properties refuses a wrong program, and says what it is."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from staff.tests import ROOT
from whichline.engine.assignment import load_problems
from whichline.engine.errors import CourseworkError, StudentRaised
from whichline.engine.result import Check, Outcome, Result
from whichline.engine.suite import Suite
from whichline_grader.authoring.programs import RIGHT
from whichline_grader.release.left_out import cut_assignment
from whichline_grader.sandbox.confinement import SandboxError
from whichline_grader.sandbox.reply import LimitExceeded


@pytest.fixture(scope="module")
def suite(solved_suite: Suite) -> Suite:
    return replace(solved_suite, tests=[test for test in solved_suite.tests if test.hidden])


def run(suite: Suite, function: str, adapters: Mapping[str, Callable[..., Any]]) -> Result:
    """The first result of a test function that did not pass, or its last."""
    suite.calls.adapters = SimpleNamespace(**adapters)
    results = [suite.run(test) for test in suite.tests if test.function == function]
    assert results, f"no test is called {function}"
    return next((result for result in results if not result.passed), results[-1])


def changed(name: str, wrong: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Right adapters, but for one: `wrong` is called with the right one, and with what that is called with."""
    return {**RIGHT, name: partial(wrong, RIGHT[name])}


SOFTMAX, ATTENTION, ROPE = "run_softmax", "run_scaled_dot_product_attention", "run_rope"
MULTIHEAD, WITH_ROPE = "run_multihead_self_attention", "run_multihead_self_attention_with_rope"
BLOCKWISE, DECODING = "run_blockwise_attention", "run_decoding"


def with_the_cache_in_another_order(right, keys, **rest):
    return right(keys=keys if keys is None else keys.roll(1, -2), **rest)


# Of tests that are no public ones on other cases.
WRONG = {
    "softmax_sums_to_one": changed(SOFTMAX, lambda right, x, dim: right(x, dim) * 1.01),
    "softmax_ignores_a_constant": changed(SOFTMAX, lambda right, x, dim: x.exp() / x.exp().sum(dim, keepdim=True)),
    "softmax_has_no_side_effects": changed(SOFTMAX, lambda right, x, dim: right(x.add_(1), dim)),
    "attention_averages_the_values": changed(ATTENTION, lambda right, Q, K, V, mask: right(Q, K, V, mask) * 1.01),
    "attention_ignores_the_order_of_keys": changed(
        ATTENTION, lambda right, Q, K, V, mask: right(Q, K + torch.arange(K.shape[-2]).unsqueeze(-1), V, mask)
    ),
    "attention_ignores_masked_keys": changed(
        ATTENTION, lambda right, Q, K, V, mask: torch.softmax(Q @ K.mT / Q.shape[-1] ** 0.5 - 1e4 * ~mask, -1) @ V
    ),
    "attention_treats_batch_entries_alone": changed(ATTENTION, lambda right, Q, **rest: right(Q=Q / len(Q), **rest)),
    "attention_has_no_side_effects": changed(ATTENTION, lambda right, Q, K, V, mask: right(Q, K, V.add_(1), mask)),
    "rope_keeps_lengths": changed(ROPE, lambda right, **rest: right(**rest) * 1.01),
    "rope_has_no_side_effects": changed(
        ROPE, lambda right, in_query_or_key, **rest: right(in_query_or_key=in_query_or_key.neg_(), **rest)
    ),
    "multihead_self_attention_does_not_look_ahead": changed(
        MULTIHEAD, lambda right, in_features, **rest: right(in_features=in_features.roll(1, -2), **rest)
    ),
    "positions_count_from_zero": changed(
        WITH_ROPE, lambda right, **given: right(**given, token_positions=torch.zeros(given["in_features"].shape[-2]))
    ),
    "multihead_self_attention_has_no_side_effects": changed(
        WITH_ROPE, lambda right, in_features, **rest: right(in_features=in_features.neg_(), **rest)
    ),
    "blockwise_attention_in_little_memory": changed(
        BLOCKWISE, lambda right, Q, K, V, mask, block_size: right(Q, K[:-11], V[:-11]) * 1.01
    ),
    "blockwise_attention_has_no_side_effects": changed(
        BLOCKWISE, lambda right, Q, K, V, mask, block_size: right(Q.mul_(2), K, V, mask)
    ),
    "hidden_decoding_in_pieces": changed(DECODING, with_the_cache_in_another_order),
    "decoding_token_by_token": changed(DECODING, with_the_cache_in_another_order),
    "decoding_has_no_side_effects": changed(DECODING, lambda right, keys, **rest: right(keys=keys.mul_(2), **rest)),
}


@pytest.mark.parametrize("name", WRONG)
def test_each_property_refuses_a_wrong_implementation(suite, name):
    assert run(suite, f"test_{name}", WRONG[name]).outcome is Outcome.FAILED


HELD = "4,200 queries and 2,090 keys take more memory than there is: is the matrix of all queries × keys held"
HELD += ", or all of its blocks?"


@pytest.mark.parametrize(
    ("error", "headline"),
    [
        (StudentRaised("RuntimeError", "DefaultCPUAllocator: can't allocate memory: 22 bytes", []), HELD),
        (LimitExceeded("run_blockwise_attention: more than 2048 MiB of memory"), HELD),
        (StudentRaised("ValueError", "the memory format is unknown", []), "ValueError: the memory format is unknown"),
    ],
    ids=["refused", "killed", "it only speaks of memory"],
)
def test_a_matrix_that_is_held_is_said_in_words(suite, error, headline):
    adapters = {**RIGHT, "run_blockwise_attention": Mock(side_effect=error)}
    assert run(suite, "test_blockwise_attention_in_little_memory", adapters).headline == headline


def test_a_grader_without_memory_is_not_the_submissions_fault(suite):
    error = SandboxError("the sandbox gives no worker (Cannot allocate memory); start it again")
    adapters = {**RIGHT, "run_blockwise_attention": Mock(side_effect=error)}
    graded = replace(suite, remote=True)
    assert run(graded, "test_blockwise_attention_in_little_memory", adapters).outcome is Outcome.ERROR


def test_every_property_is_refused_something(suite):
    properties = {test.function for test in suite.tests if test.place[0].endswith("hidden_tests.py")}
    assert {f"test_{name}" for name in WRONG} == properties


def test_a_second_answer_that_differs(suite):
    calls = itertools.count()
    unsteady = changed(SOFTMAX, lambda right, x, dim: right(x, dim) + 0.1 * (next(calls) > 0))
    result = run(suite, "test_softmax_has_no_side_effects", unsteady)
    assert (result.check, result.headline) == (Check.PROPERTY, "the same call gives a different answer the second time")


def test_the_students_list_of_points_names_no_hidden_test():
    shipped = cut_assignment((ROOT / "assignment.toml").read_text(), ())
    hidden = [test for problem in load_problems(ROOT).values() for test in problem.hidden]
    assert "test_softmax =" in shipped
    assert hidden
    assert not [test for test in hidden if f"{test} =" in shipped]
    said = r"weights of hidden tests would reach students; write \[problem.hidden\]"
    with pytest.raises(CourseworkError, match=said):
        cut_assignment('[[problem]]\nid = "softmax"\nhidden.test_hidden_softmax = 1\n', ())
