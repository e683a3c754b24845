"""What a student reads about a wrong answer."""

import pytest
import torch

from whichline.engine.compare import WrongAnswer, compare, same
from whichline.engine.result import Check

EXPECTED = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=torch.float64)
TOLERANCE = torch.full_like(EXPECTED, 1e-6)
INFINITY, NAN = float("inf"), float("nan")


def complaint(answer: object, what: str = "answer") -> str:
    with pytest.raises(WrongAnswer) as caught:
        compare(answer, EXPECTED, torch.float32, TOLERANCE, what, Check.ANSWER)
    return str(caught.value)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "is None, expected a tensor: is a `return` missing?"),
        ([1.0], "is a list, expected a tensor"),
        (EXPECTED.numpy(), "is an ndarray, expected a tensor"),
        (EXPECTED.T.float(), "has shape (3, 2), expected (2, 3)"),
        (EXPECTED, "has dtype float64, expected float32, that of the inputs"),
    ],
)
def test_what_cannot_be_compared(answer: object, said: str) -> None:
    assert complaint(answer) == f"the answer {said}"


@pytest.mark.parametrize("bad", [NAN, INFINITY])
def test_nan_and_infinity(bad: float) -> None:
    answer = EXPECTED.float()
    answer[1, 1:] = bad
    assert complaint(answer).splitlines() == [
        "the answer is NaN or infinite in 2 of 6 places, first at [1, 1]",
        "wrong only at index 1 of axis 0 (size 2)",
        "wrong only at indices 1, 2 of axis 1 (size 3)",
    ]


def test_wrong_numbers_say_how_wrong_and_where() -> None:
    answer = EXPECTED.float()
    answer[0, 2] += 0.031
    answer[1, 0] -= 0.01
    assert complaint(answer, "gradient of Q").splitlines() == [
        "the gradient of Q is wrong in 2 of 6 places",
        "furthest off at [0, 2]: got 3.031, expected 3",
        "that is 31,000 times the error that is allowed, 1e-06",
        "wrong only at indices 0, 2 of axis 1 (size 3)",
    ]


def test_a_difference_in_the_last_digits_is_shown_with_them() -> None:
    exact = torch.ones(2, dtype=torch.float64)
    with pytest.raises(WrongAnswer, match=r"got 1.00000000[34]\d*, expected 1\n"):
        compare(exact + 4e-9, exact, torch.float64, 1e-12 * exact, "answer", Check.ANSWER)


def test_the_place_is_where_most_is_off_of_what_is_allowed() -> None:
    tolerance = TOLERANCE.clone()
    tolerance[0, 0] = 1.0
    answer = EXPECTED.float() + torch.tensor([[2.0, 0, 0], [0, 1e-3, 0]])
    with pytest.raises(WrongAnswer, match=r"furthest off at \[1, 1\]"):
        compare(answer, EXPECTED, torch.float32, tolerance, "answer", Check.ANSWER)


def test_of_zeros_that_are_off_the_furthest_is_told() -> None:
    zeros = torch.zeros_like(EXPECTED)
    answer = torch.tensor([[0.0, 1e-9, 0.0], [0.0, -0.5, 0.25]])
    with pytest.raises(WrongAnswer, match=r"furthest off at \[1, 1\]: got -0.5, expected 0"):
        compare(answer, zeros, torch.float32, zeros, "answer", Check.ANSWER)


@pytest.mark.parametrize(
    ("x", "right", "alike"),
    [
        ([1.0, 100.0], [1.09, 100.0], [True, True]),  # of the largest
        ([1.0, 100.0], [1.11, 100.0], [False, True]),
        ([1.0, INFINITY], [1.09, INFINITY], [False, True]),  # of the largest finite one
        ([NAN, NAN, 1.0], [NAN, 1.0, NAN], [True, False, False]),
        ([INFINITY, -INFINITY, 1.0], [INFINITY, INFINITY, INFINITY], [True, False, False]),
        ([0.0, 1e-30], [0.0, 0.0], [True, False]),  # of no number
        ([], [], []),
    ],
)
def test_two_numbers_are_the_same(x: list, right: list, alike: list) -> None:
    assert same(torch.tensor(x), torch.tensor(right, dtype=torch.float64), 1e-3).tolist() == alike
