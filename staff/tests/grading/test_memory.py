"""Memory: submissions that are graded with the tests of one problem."""

from collections.abc import Sequence
from math import fsum
from pathlib import Path

import pytest

from staff.tests.attacks.grade import only
from staff.tools.student import write_submission
from whichline.engine.result import Result
from whichline_grader.grading.one_submission import grade_one
from whichline_grader.grading.suite import GradedSuite
from whichline_grader.sandbox.confinement import Sandbox
from whichline_grader.sandbox.submission import take_in

pytestmark = pytest.mark.slow

HEAD = "right_blockwise = run_blockwise_attention\ndef run_blockwise_attention(Q, K, V, mask=None, block_size=None):\n"
# What each submission adds to the solved adapters, below that.
SUBMISSIONS = {
    "whole-matrix": "    return run_scaled_dot_product_attention(Q, K, V, mask)",
    "repeated-once": "    if mask is not None or Q.ndim > 2:\n"
    "        return run_scaled_dot_product_attention(Q, K, V, mask)\n"
    "    def once(x):\n"
    "        rows = {}\n"
    "        which = torch.tensor([rows.setdefault(tuple(row), len(rows)) for row in x.tolist()])\n"
    "        return which, torch.tensor([*rows])\n"
    "    (which, queries), (same, keys) = once(Q), once(K)\n"
    "    times = same.bincount()\n"
    "    V = V.new_zeros(len(keys), V.shape[-1]).index_add(0, same, V) / times.unsqueeze(-1)\n"
    "    weights = torch.exp((queries @ keys.mT).to(Q.dtype) / Q.shape[-1]**0.5) * times\n"
    "    return (weights @ V / weights.sum(-1, keepdim=True))[which]",
    "half-precision-blocks": "    kept = [(rows @ K.mT).half() for rows in Q.split(block_size or 64, -2)]\n"
    "    return right_blockwise(Q, K, V, mask, block_size)",
    "half-precision-matrix": "    kept = torch.zeros(*Q.shape[:-1], K.shape[-2], dtype=torch.half)\n"
    "    return right_blockwise(Q, K, V, mask, block_size)",
    "in-strips": "    mask = None if mask is None else mask.broadcast_to(*mask.shape[:-2], Q.shape[-2], K.shape[-2])\n"
    "    starts = range(0, Q.shape[-2], block_size or 64)\n"
    "    strips = [slice(start, start + (block_size or 64)) for start in starts]\n"
    "    masks = [None if mask is None else mask[..., rows, :] for rows in strips]\n"
    "    return torch.cat([run_scaled_dot_product_attention(Q[..., rows, :], K, V, mask)\n"
    "                      for rows, mask in zip(strips, masks)], -2)",
    "in-columns": "    n, keys, kind = block_size or 64, K.shape[-2], Q.dtype\n"
    "    Q, K, V = (x.to(torch.promote_types(kind, torch.float32)) for x in (Q, K, V))\n"
    "    columns = [slice(start, start + n) for start in range(0, keys, n)]\n"
    "    may = None if mask is None else mask.broadcast_to(*mask.shape[:-1], keys)\n"
    "    def scores(block):\n"
    "        products = torch.einsum('...qd,...kd->...qk', Q, K[..., block, :]) * Q.shape[-1] ** -0.5\n"
    "        return products if may is None else torch.where(may[..., block], products, -torch.inf)\n"
    "    largest = torch.stack([scores(block).amax(-1) for block in columns]).amax(0).unsqueeze(-1)\n"
    "    largest = largest.masked_fill(largest == -torch.inf, 0.0)\n"
    "    total = weighted = torch.zeros(())\n"
    "    for block in columns:\n"
    "        powers = torch.exp(scores(block) - largest)\n"
    "        total = total + powers.sum(-1, keepdim=True)\n"
    "        weighted = weighted + torch.einsum('...qk,...kv->...qv', powers, V[..., block, :])\n"
    "    return (weighted / total.masked_fill(total == 0, 1)).to(kind)",
}


@pytest.fixture
def results(graded_suite: GradedSuite, sandbox: Sandbox, tmp_path: Path, name: str) -> Sequence[Result]:
    """Those of the submission `name` in the tests of its problem."""
    tests = [test.name for test in graded_suite.suite.tests if test.problem == "blockwise_attention"]
    submission = take_in(write_submission(tmp_path / name, HEAD + SUBMISSIONS[name]))
    return grade_one(only(graded_suite, tests), sandbox, submission)[0]


@pytest.mark.parametrize("name", ["whole-matrix", "repeated-once", "half-precision-blocks", "half-precision-matrix"])
def test_blockwise_attention_that_holds_the_matrix_is_told_so(results: Sequence[Result]) -> None:
    failed = {each.function for each in results if not each.passed}
    assert failed == {"test_blockwise_attention_holds_no_matrix", "test_blockwise_attention_in_little_memory"}
    assert fsum(each.points for each in results) == pytest.approx(3 * 38 / 90, abs=1e-4)
    assert any("is the matrix of all queries × keys held" in each.text for each in results)


@pytest.mark.parametrize("name", ["in-strips", "in-columns"])
def test_blockwise_attention_may_hold_whole_rows_or_columns(results: Sequence[Result]) -> None:
    assert not [each.test for each in results if not each.passed]
