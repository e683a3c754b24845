"""Errors carried forward: who pays once, and who may not pass for that."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from cs336_kit.engine.failure import Stopped
from cs336_kit.engine.result import Outcome, Result
from cs336_kit.engine.suite import Suite
from cs336_staff.authoring.programs import CATALOGUE, RIGHT, put_in_place, put_together, wrong_submission
from cs336_staff.authoring.room import Adapter, Misconception, load_rooms, wrong
from cs336_staff.grading.carried_forward import CarriedForward, as_if, differ, hide
from cs336_staff.release.verify import both_suites, run_suite
from cs336_staff.sandbox.interview import Starved
from cs336_staff.tests import ROOT

PROBLEM = "multihead_self_attention"
MULTIHEAD = load_rooms()[PROBLEM].calls


@pytest.fixture(scope="module")
def whole() -> Suite:
    return both_suites(ROOT)


@pytest.fixture(scope="module")
def suite(whole: Suite) -> Suite:
    return replace(whole, tests=[test for test in whole.tests if not test.bonus])


def judge(suite: Suite, results: Iterable[Result]) -> list[tuple[Result, Result]]:
    """Each result, and what becomes of it when errors are carried forward."""
    carried = CarriedForward(suite, suite.run, lambda name: None)
    return [(result, carried.judge(test, result)) for test, result in zip(suite.tests, results, strict=True)]


def lost(suite: Suite, program: Mapping[str, Adapter]) -> dict[str, float]:
    """The points that a program loses in each problem in which it loses any, errors carried forward."""
    points = dict.fromkeys(suite.problems, 0.0)
    for _, charged in judge(suite, run_suite(suite, program)):
        points[charged.problem] += charged.maximum - charged.points
    return {problem: round(x, 2) for problem, x in points.items() if x}


def fault(problem: str, **numbers: float | None) -> Misconception:
    """Mistakes that the search knows, by their ids, each at its number if it has one."""
    table, parts = load_rooms()[problem].table, {}
    assert table
    for id, number in numbers.items():
        known = [each for each in table.changes if each.id.replace("-", "_") == id]
        change = next(each for each in known if bool(each.numbers) == (number is not None))
        parts[change.step] = change if number is None else change.at(number)
    return Misconception(", ".join(numbers), parts=parts, problem=problem)


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


@pytest.mark.parametrize(
    "faults",
    [
        # A free number, which the catalogue has not
        (fault("linear", bias=0.0123),),
        (fault("linear", scaled=0.71),),
        (fault("rope", exponent=-1.37),),
        (fault("rope", angle_factor=0.83),),
        (fault("scaled_dot_product_attention", scale_constant=0.29),),
        # Two in one problem
        (fault("scaled_dot_product_attention", scale_missing=None, keys_values_swapped=None),),
        (fault("rope", pairs_halves=None, from_one=None),),
        # Several problems
        (fault("linear", bias=0.2), fault("rope", direction=None)),
        (fault("softmax", base_2=None), fault("linear", transposed=None)),
        (
            fault("scaled_dot_product_attention", mask_added=None),
            fault("linear", relu=None),
            fault("rope", concatenated=None),
        ),
    ],
    ids=lambda faults: " ".join(each.id for each in faults),
)
def test_faults_with_a_number_or_several_are_paid_for_once(suite: Suite, faults: tuple[Misconception, ...]) -> None:
    points = lost(suite, put_together(faults))
    assert points.keys() >= {each.problem for each in faults}
    assert points.get(PROBLEM, 0.0) <= 0.1 * suite.problems[PROBLEM].points


def test_a_wrong_multihead_attention_on_a_wrong_attention_pays_for_both(suite: Suite) -> None:
    scale, peeks = CATALOGUE["attention-scale-missing"], CATALOGUE["multihead-mask-peeks"]
    assert lost(suite, put_together([scale, peeks]))[PROBLEM] == lost(suite, wrong_submission(peeks.id))[PROBLEM]


def test_a_scale_forgotten_in_multihead_attention_alone_is_a_fault_of_its_own(suite: Suite) -> None:
    wrong = {call: CATALOGUE["attention-scale-missing"].adapters[call] for call in MULTIHEAD}
    assert lost(suite, {**RIGHT, **wrong})[PROBLEM] > 4


def test_an_attention_that_cannot_tell_carries_nothing(suite: Suite) -> None:
    """Without a mask in attention nobody sees whether multi-head attention has one."""
    assert lost(suite, wrong_submission("attention-mask-ignored"))[PROBLEM] > 4


def always(value: float) -> dict[str, Adapter]:
    """Tensors of the right shape and dtype, all of one number."""

    def filled(right: Any) -> Any:
        return tuple(map(filled, right)) if isinstance(right, tuple) else torch.full_like(right, value)

    def of(right: Adapter) -> Adapter:
        return lambda *arguments, **named: filled(right(*arguments, **named))

    return {call: of(right) for call, right in RIGHT.items()}


def attention_alone(program: Adapter) -> Mapping[str, Adapter]:
    return put_in_place(wrong("", program), "scaled_dot_product_attention").adapters


def uniform(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    return RIGHT["run_scaled_dot_product_attention"](torch.zeros_like(Q), K, V, mask)


TRIVIAL = {
    "zeros": always(0.0),
    "ones": always(1.0),
    "NaN": always(torch.nan),
    "uniform weights": attention_alone(uniform),
    "the mean of V": attention_alone(lambda Q, K, V, mask: uniform(Q, K, V, None)),
    "the input itself": {
        "run_softmax": lambda in_features, dim: in_features,
        "run_scaled_dot_product_attention": lambda Q, K, V, mask=None: V,
        "run_linear": lambda in_features, **rest: in_features,
        "run_rope": lambda in_query_or_key, **rest: in_query_or_key,
        "run_multihead_self_attention": lambda in_features, **rest: in_features,
        "run_multihead_self_attention_with_rope": lambda in_features, **rest: in_features,
        "run_multihead_attention": lambda query, **rest: query,
        "run_blockwise_attention": lambda Q, K, V, mask, block_size: V,
    },
}


@pytest.mark.parametrize("program", TRIVIAL)
def test_what_computes_next_to_nothing_earns_next_to_nothing(whole: Suite, program: str) -> None:
    """Also in bonus problems: where dropout is judged, weights that are all 0 would be right."""
    judged = judge(whole, run_suite(whole, TRIVIAL[program]))
    assert not any(after.outcome is Outcome.ERROR for _, after in judged)
    assert not any(after.passed for before, after in judged if not before.passed)
    for bonus in (False, True):
        some = [after for test, (_, after) in zip(whole.tests, judged, strict=True) if test.bonus == bonus]
        assert sum(result.points for result in some) < 0.03 * sum(result.maximum for result in some)


def test_who_looks_up_the_public_answers_earns_an_eighth(suite: Suite) -> None:
    public = sum(test.points for test in suite.tests if not test.hidden)
    assert public < sum(test.points for test in suite.tests) / 8


@pytest.mark.parametrize(
    "blind",
    [
        *(fault("linear", scaled=0.0), fault("linear", bias=1e9), fault("rope", skipped=None)),
        *(fault("scaled_dot_product_attention", **{id: None}) for id in ("mask_ignored", "weights_uniform")),
        fault("scaled_dot_product_attention", weights_factor=0.0),
    ],
    ids=lambda blind: blind.id,
)
def test_a_fault_on_which_a_wrong_multihead_attention_does_not_show_is_not_carried(
    suite: Suite, blind: Misconception
) -> None:
    tests = [test for test in suite.tests if test.name in load_rooms()[PROBLEM].telling]
    assert hide([blind], PROBLEM, tests)
    assert lost(suite, put_together([blind]))[PROBLEM] > 0.1 * suite.problems[PROBLEM].points


def test_a_fault_counts_only_where_a_public_test_has_failed_for_it(suite: Suite) -> None:
    """A submission that is right in public cannot say afterwards that its softmax was wrong all along."""
    results = [
        replace(result, outcome=Outcome.PASSED, check=None)
        if result.problem == "softmax" and not result.hidden
        else result
        for result in run_suite(suite, wrong_submission("softmax-sign"))
    ]
    assert all(after.passed == before.passed for before, after in judge(suite, results))


def test_a_fault_that_does_not_show_in_a_test_is_no_second_chance(suite: Suite) -> None:
    (test,) = [test for test in suite.tests if test.name == "test_scaled_dot_product_attention[3d-no-mask]"]
    assert not differ(test, as_if(test, CATALOGUE["softmax-epsilon"].adapters))


def test_a_program_that_ends_its_process_when_it_is_searched_carries_nothing(suite: Suite) -> None:
    """As one does that never ends: its process is stopped."""
    wrong = wrong_submission("attention-scale-missing")
    results = run_suite(suite, wrong)

    def stopping(**arguments: object) -> None:
        raise Stopped("it took too long")

    suite.calls.adapters = SimpleNamespace(**{**wrong, "run_scaled_dot_product_attention": stopping})
    assert all(after.passed == before.passed for before, after in judge(suite, results))


def starving(**arguments: object) -> None:
    raise Starved("the machine is busy")


def test_a_busy_machine_while_an_error_is_carried_forward_is_no_grade(suite: Suite) -> None:
    remote = replace(suite, remote=True)
    carried = CarriedForward(remote, remote.run, lambda name: None)
    ends = []
    for test, result in zip(suite.tests, run_suite(suite, wrong_submission("attention-scale-missing")), strict=True):
        suite.calls.adapters = SimpleNamespace(**wrong_submission("attention-scale-missing"))
        if test.problem == PROBLEM:
            carried.find_faults(test, result)
            suite.calls.adapters = SimpleNamespace(**dict.fromkeys(MULTIHEAD, starving))
        ends.append(carried.judge(test, result).outcome)
    assert Outcome.ERROR in ends
