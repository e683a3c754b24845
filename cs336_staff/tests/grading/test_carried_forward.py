"""Errors carried forward: who pays once, and who may not pass for that."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from cs336_kit.engine.assignment import find_root
from cs336_kit.engine.result import Outcome
from cs336_kit.engine.suite import Suite, Test
from cs336_staff.authoring.programs import CATALOGUE, RIGHT, build_submission, wrong_submission
from cs336_staff.authoring.room import Adapter, Misconception, Part, load_rooms
from cs336_staff.grading.carried_forward import CarriedForward, Known, differ, with_fault
from cs336_staff.problems.faults import TRIVIAL
from cs336_staff.release.verify import both_suites, run_suite
from cs336_staff.sandbox.worker import Starved

PROBLEM = "multihead_self_attention"
MULTIHEAD = load_rooms()[PROBLEM].calls
FAULTS = [fault for fault in CATALOGUE.values() if fault.problem != PROBLEM and MULTIHEAD[1] in fault.adapters]
# A RoPE of its own may have the very mistake of the other one.
WRONG = [fault for fault in CATALOGUE.values() if fault.problem == PROBLEM and "rotate" not in fault.parts]


@pytest.fixture(scope="module")
def suite() -> Suite:
    whole = both_suites(find_root(Path(__file__).parent))
    return replace(whole, tests=[test for test in whole.tests if not test.bonus])


def lost(suite: Suite, program: Mapping[str, Adapter]) -> dict[str, float]:
    """The points that a program loses in each problem in which it loses any, errors carried forward."""
    carried, points = CarriedForward(suite), dict.fromkeys(suite.problems, 0.0)
    for test, result in zip(suite.tests, run_suite(suite, program), strict=True):
        charged = carried.judge(test, result)
        points[test.problem] += charged.maximum - charged.points
    return {problem: round(x, 2) for problem, x in points.items() if x}


def on(fault: Misconception, wrong: Misconception) -> dict[str, Adapter]:
    """Multi-head attention that is wrong itself, on a part that has a fault."""

    def build(each: Misconception, earlier: Mapping[str, Part]) -> Part:
        return each.program or partial(load_rooms()[each.problem].build(earlier), **each.parts)

    adapters = build_submission({each.problem: partial(build, each) for each in (fault, wrong)})
    return {call: adapters[call] for call in MULTIHEAD}


@pytest.mark.parametrize(
    ("id", "problem"),
    [
        ("softmax-base-2", "softmax"),
        ("attention-scale-missing", "scaled_dot_product_attention"),
        ("attention-mask-inverted", "scaled_dot_product_attention"),
        ("attention-softmax-over-queries", "scaled_dot_product_attention"),
        ("rope-pairs-halves", "rope"),
    ],
)
def test_a_fault_is_paid_for_once(suite: Suite, id: str, problem: str) -> None:
    points = lost(suite, wrong_submission(id))
    assert points.pop(problem) > 0.5
    assert sum(points.values()) < 0.5  # half precision in half precision, as the parts of the catalogue have it


def test_a_wrong_multihead_attention_on_a_wrong_attention_pays_for_both(suite: Suite) -> None:
    fault, wrong = CATALOGUE["attention-scale-missing"], CATALOGUE["multihead-mask-peeks"]
    assert (
        lost(suite, {**wrong_submission(fault.id), **on(fault, wrong)})[PROBLEM]
        == lost(suite, wrong_submission(wrong.id))[PROBLEM]
    )


def test_a_scale_forgotten_in_multihead_attention_alone_is_a_fault_of_its_own(suite: Suite) -> None:
    wrong = {call: CATALOGUE["attention-scale-missing"].adapters[call] for call in MULTIHEAD}
    assert lost(suite, {**RIGHT, **wrong})[PROBLEM] > 4


def test_an_attention_that_cannot_tell_carries_nothing(suite: Suite) -> None:
    """Without a mask in attention nobody sees whether multi-head attention has one."""
    assert lost(suite, wrong_submission("attention-mask-ignored"))[PROBLEM] > 4


@pytest.mark.parametrize("program", ["zeros", "NaN", "the mean of V"])
def test_nothing_is_carried_for_who_computes_nothing(suite: Suite, program: str) -> None:
    results = run_suite(suite, TRIVIAL[program])
    carried = CarriedForward(suite)
    judged = [(result, carried.judge(test, result)) for test, result in zip(suite.tests, results, strict=True)]
    assert not any(after.passed for before, after in judged if not before.passed)


@pytest.mark.slow
def test_only_a_fault_on_which_every_wrong_multihead_attention_shows_is_carried_forward(suite: Suite) -> None:
    names = ("test_multihead_self_attention[3d]", "test_multihead_self_attention_with_rope[per-batch]")
    tests = [test for test in suite.tests if test.name in names]

    def passed(tests: list[Test], program: Mapping[str, Adapter]) -> set[str]:
        results = run_suite(replace(suite, tests=tests), {**RIGHT, **program})
        return {result.test for result in results if result.passed}

    right_here = {wrong.id: passed(tests, wrong.adapters) for wrong in WRONG}
    blind = set()
    for fault in FAULTS:
        if len(passed(tests, fault.adapters)) < len(tests):  # else there is nothing to carry
            with suppress(Exception):  # with this fault a program raises, and is never carried forward
                cases = [[with_fault(case, fault) for case in test.cases()] for test in tests]
                as_if = [replace(test, stored=None, drawn=Known(each)) for test, each in zip(tests, cases, strict=True)]
                programs = {wrong.id: {**fault.adapters, **on(fault, wrong)} for wrong in WRONG}
                if any(passed(as_if, program) - right_here[id] for id, program in programs.items()):
                    blind.add(fault.id)
    assert blind <= {fault.id for fault in FAULTS if not fault.carried}  # others may raise in a later problem


def test_a_fault_counts_only_where_a_public_test_has_failed_for_it(suite: Suite) -> None:
    """A submission that is right in public cannot say afterwards that its softmax was wrong all along."""
    program = wrong_submission("softmax-sign")
    carried = CarriedForward(suite)
    for test, result in zip(suite.tests, run_suite(suite, program), strict=True):
        if test.name in load_rooms()["softmax"].telling:
            result = replace(result, outcome=Outcome.PASSED, check=None)
        assert carried.judge(test, result).passed == result.passed


def test_a_fault_that_does_not_show_in_a_test_is_no_second_chance(suite: Suite) -> None:
    epsilon = CATALOGUE["softmax-epsilon"]
    (test,) = [test for test in suite.tests if test.name == "test_scaled_dot_product_attention[3d-no-mask]"]
    (case,) = test.cases()
    assert not differ(case, with_fault(case, epsilon))


def starving(**arguments: object) -> None:
    raise Starved("the machine is busy")


def test_a_busy_machine_while_an_error_is_carried_forward_is_no_grade(suite: Suite) -> None:
    carried = CarriedForward(replace(suite, remote=True))
    ends = []
    for test, result in zip(suite.tests, run_suite(suite, wrong_submission("attention-scale-missing")), strict=True):
        suite.calls.adapters = SimpleNamespace(**wrong_submission("attention-scale-missing"))
        carried.faults()
        if test.problem == PROBLEM:
            suite.calls.adapters = SimpleNamespace(**dict.fromkeys(MULTIHEAD, starving))
        ends.append(carried.judge(test, result).outcome)
    assert Outcome.ERROR in ends
