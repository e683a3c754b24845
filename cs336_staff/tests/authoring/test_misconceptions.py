"""The catalogue: every misconception loses a test of either suite; right programs lose none."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from cs336_kit.engine.assignment import SuiteError, find_root, load_problems
from cs336_kit.engine.suite import Suite
from cs336_staff.authoring.misconceptions import CATALOGUE, FAMILIES, check_catalogue, softmax
from cs336_staff.authoring.right_styles import RIGHT_STYLES
from cs336_staff.release.verify import both_suites, run_suite, submission

ROOT = find_root(Path(__file__).parent)
# One of each problem, and each way in which a mistake shows: by numbers, by an error, by a side effect, by chance.
SAMPLE = (
    "softmax-ignores-dim",
    "softmax-detached",
    "softmax-in-place",
    "attention-by-d_k",
    "attention-dropout",
    "attention-mask-required",
    "linear-bias",
    "rope-half-tables",
    "multihead-heads-inner",
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
    results = run_suite(suite, submission(id))
    for hidden in (False, True):
        failed = {result.problem for result in results if result.hidden == hidden and not result.passed}
        assert CATALOGUE[id].problem in failed


@pytest.mark.parametrize("style", RIGHT_STYLES)
def test_a_right_program_passes_everything(suite: Suite, style: str) -> None:
    results = run_suite(suite, RIGHT_STYLES[style])
    assert {result.test: result.headline for result in results if not result.passed} == {}
    assert len(results) == len(suite.tests)


def test_the_catalogue_is_well_formed() -> None:
    assert len(CATALOGUE) == sum(len(family.ENTRIES) for family in FAMILIES), "an id is used twice"
    assert {entry.problem for entry in CATALOGUE.values()} == load_problems(ROOT).keys()


GOOD = CATALOGUE["softmax-in-place"]
BAD = {
    "an id that no other has": GOOD,
    "an id of its family": replace(GOOD, id="in place"),
    "some words": replace(GOOD, id="softmax"),
    "what it does, as a verb": replace(GOOD, id="softmax-bad", what=""),
    "without a full stop": replace(GOOD, id="softmax-bad", what="It is wrong."),
    "a problem of the assignment, got 'sofmax'": replace(GOOD, id="softmax-bad", problem="sofmax"),
    "some adapters": replace(GOOD, id="softmax-bad", adapters={}),
    "adapters of these names": replace(GOOD, id="softmax-bad", adapters={"run_sofmax": print}),
    "adapters that can be called": replace(GOOD, id="softmax-bad", adapters={"run_softmax": 3}),  # type: ignore[dict-item]
    "parts that can be called": replace(GOOD, id="softmax-bad", parts={"softmax": None}),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("expected", BAD)
def test_a_bad_entry_is_refused(monkeypatch: pytest.MonkeyPatch, expected: str) -> None:
    check_catalogue(load_problems(ROOT))
    monkeypatch.setattr(softmax, "ENTRIES", (*softmax.ENTRIES, BAD[expected]))
    with pytest.raises(SuiteError, match=rf"the misconception '.*': expected .*{re.escape(expected)}"):
        both_suites(ROOT)
