"""The catalogue: every misconception loses a test of either suite; right programs lose none."""

from pathlib import Path

import pytest

from cs336_kit.engine.assignment import find_root, load_problems
from cs336_kit.engine.suite import Suite
from cs336_staff.authoring.programs import CATALOGUE, RIGHT_STYLES, wrong_submission
from cs336_staff.release.verify import both_suites, run_suite

ROOT = find_root(Path(__file__).parent)
# One of each problem, and each way in which a mistake shows: by numbers, by an error, by a side effect, by chance.
SAMPLE = (
    "softmax-axis-last",
    "softmax-detached",
    "softmax-in-place",
    "attention-scale-by-d_k",
    "attention-dropout",
    "attention-mask-required",
    "linear-bias",
    "rope-precision",
    "multihead-split-inner",
    "module-dropout-not-rescaled",
    "module-weights-before-mask",
    "cross-padding-along-queries",
    "blockwise-nothing-rescaled",
)


@pytest.fixture(scope="module")
def suite() -> Suite:
    return both_suites(ROOT)


@pytest.mark.parametrize("id", SAMPLE)
def test_a_misconception_is_caught_by_both_suites(suite: Suite, id: str) -> None:
    """A sample of them: `cs336 staff verify` looks at all."""
    results = run_suite(suite, wrong_submission(id))
    for hidden in (False, True):
        failed = {result.problem for result in results if result.hidden == hidden and not result.passed}
        assert CATALOGUE[id].problem in failed


@pytest.mark.parametrize("style", RIGHT_STYLES)
def test_a_right_program_passes_everything(suite: Suite, style: str) -> None:
    results = run_suite(suite, RIGHT_STYLES[style])
    assert {result.test: result.headline for result in results if not result.passed} == {}
    assert len(results) == len(suite.tests)


def test_every_problem_has_misconceptions() -> None:
    assert {entry.problem for entry in CATALOGUE.values()} == load_problems(ROOT).keys()
