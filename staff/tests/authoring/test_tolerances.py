"""How far off an answer may be: right programs stay well within it, and lost digits fail where they are asked for."""

import pytest
import torch
from torch import Tensor

from problems.scaled_dot_product_attention.staff.cases import inputs as attention
from whichline.engine.case import Case
from whichline.engine.compare import WrongAnswer
from whichline.engine.suite import Suite
from whichline_grader.authoring.cases import CaseSpec
from whichline_grader.authoring.programs import RIGHT, RIGHT_STYLES
from whichline_grader.authoring.spec import Adapter
from whichline_grader.authoring.stored_cases import make_case
from whichline_grader.release.verify import run_suite

ATTENTION = "run_scaled_dot_product_attention"


def in_float32(x: Tensor, dim: int) -> Tensor:
    return RIGHT["run_softmax"](x.float(), dim).to(x.dtype)


def right_to_four_digits(x: Tensor, dim: int) -> Tensor:
    return RIGHT["run_softmax"](x, dim) * (1 + 1e-4)


def in_its_own_dtype(x: Tensor, dim: int) -> Tensor:
    exponentials = torch.exp(x - x.amax(dim, keepdim=True))
    return exponentials / exponentials.sum(dim, keepdim=True)


def in_float32_at_least(x: Tensor, dim: int) -> Tensor:
    answer = RIGHT["run_softmax"](x, dim)
    return answer.float() if x.dtype.itemsize == 2 else answer


HALF_PRECISION = {f"test_softmax_in_half_precision[{dtype}]" for dtype in ("float16", "bfloat16")}
LAST_DIGIT = {f"test_softmax_to_the_last_digit[{dtype}]" for dtype in ("float32", "float64")}
LESS = [(in_float32, {"test_softmax_to_the_last_digit[float64]"}), (right_to_four_digits, LAST_DIGIT)]
LESS += [(in_its_own_dtype, HALF_PRECISION), (in_float32_at_least, HALF_PRECISION)]


@pytest.mark.parametrize(("softmax", "asked"), LESS)
def test_lost_digits_fail_only_tests_that_ask_for_them(softmax: Adapter, asked: set[str], solved_suite: Suite) -> None:
    failed = {result.test for result in run_suite(solved_suite, {**RIGHT, "run_softmax": softmax}) if not result.passed}
    assert failed == asked | {test.replace("test_", "test_hidden_") for test in asked}


def attention_case(*batch: int, gradients: tuple[str, ...] = (), seed: int = 0, **sizes) -> Case:
    return make_case(CaseSpec("attention", ATTENTION, attention(*batch, **sizes), gradients), seed)


@pytest.mark.parametrize("style", RIGHT_STYLES)
def test_a_gradient_that_is_0_because_it_cancels_may_be_off_by_what_cancels(style: str) -> None:
    """One key: the weight is 1 whatever the query is. Whoever divides by the sum at the end subtracts two numbers."""
    for seed in range(20):
        case = attention_case(2, queries=3, keys=1, d_k=2, d_v=3, gradients=("Q", "K", "V"), seed=seed)
        assert not case.expected["gradient of Q"].any()
        case.require_gradients()
        case.check_gradients(RIGHT_STYLES[style][ATTENTION](**case.inputs))


def test_a_gradient_that_is_0_may_not_be_off_by_more() -> None:
    case = attention_case(2, queries=3, keys=1, d_k=2, d_v=3, gradients=("Q",))
    case.require_gradients()
    answer = RIGHT[ATTENTION](**case.inputs) + 1e-4 * (case.Q - case.Q.detach()).sum()
    with pytest.raises(WrongAnswer, match="gradient of Q is wrong"):
        case.check_gradients(answer)


def test_where_nothing_is_attended_to_zeros_are_exact() -> None:
    case = attention_case(2, mask="empty rows")
    answer = RIGHT[ATTENTION](**case.inputs)
    case.check(answer)
    with pytest.raises(WrongAnswer, match="expected 0\nno error is allowed there: it should be exactly 0"):
        case.check(torch.where(case.mask.any(-1, keepdim=True), answer, 1e-30))


def test_a_tenth_of_a_percent_of_the_largest_number_is_three_digits() -> None:
    case = attention_case(2, queries=1)
    right, largest = case.expected["answer"], float(case.expected["answer"].abs().max())
    case.check((right + 0.9e-3 * largest).float())
    with pytest.raises(WrongAnswer, match=r"that is 1.1 times the error that is allowed"):
        case.check((right + 1.1e-3 * largest).float())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32_and_rounded_once(dtype: torch.dtype) -> None:
    case = attention_case(2, mask="random", dtype=dtype)
    answer = RIGHT[ATTENTION](**case.inputs)
    case.check(answer)
    case.check_to_the_last_digit(answer)
    scores = (case.Q @ case.K.mT / case.Q.shape[-1] ** 0.5).masked_fill(~case.mask, -torch.inf)
    with pytest.raises(WrongAnswer, match="the error that is allowed"):
        case.check_to_the_last_digit(torch.softmax(scores, -1) @ case.V)
