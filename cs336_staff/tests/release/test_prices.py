"""What a fault costs: its own tests, and no others."""

import re

import pytest

from cs336_kit.engine.suite import Suite
from cs336_staff.problems.faults import FAULTY, TRIVIAL
from cs336_staff.release.prices import earned, pages
from cs336_staff.release.verify import both_suites, run_suite
from cs336_staff.tests import ROOT


@pytest.fixture(scope="module")
def suite() -> Suite:
    return both_suites(ROOT)


@pytest.mark.parametrize(
    ("fault", "tests"),
    [
        ("ε = 1e-9 in the denominator of softmax", r"last_digit\[float64\]"),
        ("ε = 1e-6 there", r"last_digit\[float64\]"),
        ("softmax computes float64 in float32", r"last_digit\[float64\]|far-apart"),
        ("attention computes float64 in float32", r"last_digit\[float64\]|far-apart"),
        ("half precision computed in half precision", "in_half_precision"),
        ("attention refuses Q, K, V of two dimensions", r"no-batch|by-hand"),
        ("K and V do not broadcast", "one-key-value-head|one-query-head"),
        ("NaN for a query that may attend to nothing", "nothing.to.attend.to"),
        ("Q changed in place", "alone|side_effects|gradients"),  # autograd refuses it, where gradients are asked for
        ("attention detached from autograd", "gradients"),
        ("crash without a mask", "no-mask|without_a_mask|by-hand"),
        ("multi-head needs exactly three dimensions", "no-batch|two-batch-dims"),
        ("multi-head needs an even d_head, without RoPE too", "heads-of-one"),
    ],
)
def test_a_fault_is_met_by_its_own_tests_alone(suite: Suite, fault: str, tests: str) -> None:
    failed = [result.test for result in run_suite(suite, FAULTY[fault]) if not result.passed]
    assert failed
    assert [test for test in failed if not re.search(tests, test)] == []


@pytest.mark.parametrize("program", [name for name in TRIVIAL if name != "softmax, and nothing else"])
def test_a_program_that_computes_next_to_nothing_earns_next_to_nothing(suite: Suite, program: str) -> None:
    for bonus in (False, True):
        most = 0.03 * sum(test.points for test in suite.tests if test.bonus == bonus)
        assert sum(earned(suite, TRIVIAL[program], bonus).values()) < most


def test_who_looks_up_the_public_answers_and_gives_zeros_for_the_rest_earns_less_than_two_of_fifteen(
    suite: Suite,
) -> None:
    public = sum(test.points for test in suite.tests if not test.hidden and not test.bonus)
    assert public + sum(earned(suite, TRIVIAL["zeros"]).values()) < 2


@pytest.mark.slow
def test_the_pages_state_these_points() -> None:
    for path, text in pages(ROOT):
        assert path.read_text(encoding="utf-8") == text, "run: python -m cs336_staff.release.prices"
