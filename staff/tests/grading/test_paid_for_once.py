"""Specimens with one mistake in an early problem, which the later problems call: each loses points there alone."""

import pytest

from staff.tests.specimens.specimen import SPECIMENS, Specimen
from staff.tools.student import FUNCTIONAL, LINEAR, ROOT, ROPE
from whichline_grader.grading.one_submission import grade_one
from whichline_grader.grading.suite import GradedSuite
from whichline_grader.sandbox.confinement import Sandbox
from whichline_grader.sandbox.submission import Submission, take_in

pytestmark = pytest.mark.nightly
TURN = """
make = RotaryPositionalEmbedding.__init__

def make_and_keep(self, theta, d_k, max_seq_len, *more, **named):
    make(self, theta, d_k, max_seq_len, *more, **named)
    self.kept = d_k, theta, max_seq_len

RotaryPositionalEmbedding.__init__ = make_and_keep
RotaryPositionalEmbedding.forward = lambda self, x, positions: run_rope(*self.kept, x, positions)
"""
# For each problem the file that later problems call, and how they come to the specimen from there.
EARLY = {
    "softmax": (FUNCTIONAL, "softmax = run_softmax"),
    "scaled_dot_product_attention": (FUNCTIONAL, "scaled_dot_product_attention = run_scaled_dot_product_attention"),
    "linear": (LINEAR, "Linear.forward = lambda self, x: run_linear(*self.weight.T.shape, self.weight, x)"),
    "rope": (ROPE, TURN),
}


def find_problem(specimen: Specimen) -> str | None:
    """The early problem that a specimen has one mistake in, and no other adapter than its own."""
    written = [name for name in EARLY if f"def run_{name}(" in specimen.code]
    one = len(specimen.tutor) == len(written) == specimen.code.count("\ndef run_") == 1
    return written[0] if one and specimen.findings != "passes" else None


CHOSEN = [(specimen, problem) for specimen in SPECIMENS if (problem := find_problem(specimen))]


@pytest.mark.parametrize(("specimen", "problem"), CHOSEN, ids=[str(specimen) for specimen, _ in CHOSEN])
def test_a_mistake_costs_once(graded_suite: GradedSuite, sandbox: Sandbox, specimen: Specimen, problem: str) -> None:
    files, (file, calls) = dict(take_in(ROOT).files), EARLY[problem]
    files["cs336_basics/specimen.py"] = specimen.code.encode()
    files[file] += f"\n\nfrom cs336_basics.specimen import run_{problem}\n{calls}\n".encode()
    results, _, _ = grade_one(graded_suite, sandbox, Submission("x", files, "adapters"))
    assert {result.problem for result in results if not result.passed} == {problem}
