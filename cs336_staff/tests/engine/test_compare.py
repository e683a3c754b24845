"""What a student reads about a wrong answer."""

import pytest
import torch

from cs336_kit.engine.compare import WrongAnswer, compare

EXPECTED = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=torch.float64)


def complaint(answer: object, what: str = "answer") -> str:
    with pytest.raises(WrongAnswer) as caught:
        compare(answer, EXPECTED, torch.float32, 1e-6, what)
    return str(caught.value)


def test_an_answer_within_the_tolerance_is_right() -> None:
    compare(EXPECTED.float() + 5e-7, EXPECTED, torch.float32, 1e-6)


def test_a_missing_return() -> None:
    assert complaint(None) == "the answer is None, expected a tensor: is a `return` missing?"


def test_something_else_than_a_tensor() -> None:
    assert complaint([1.0]) == "the answer is a list, expected a tensor"


def test_a_wrong_shape() -> None:
    assert complaint(EXPECTED.T.float()) == "the answer has shape (3, 2), expected (2, 3)"


def test_a_wrong_dtype() -> None:
    assert complaint(EXPECTED) == "the answer has dtype float64, expected float32, that of the inputs"


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nan_and_infinity(bad: float) -> None:
    answer = EXPECTED.float()
    answer[1, 1:] = bad
    assert complaint(answer).splitlines() == [
        "the answer is NaN or infinite in 2 of 6 places, first at [1, 1]",
        "only at 1 along axis 0, the others of its 2 are right",
        "only at 1, 2 along axis 1, the others of its 3 are right",
    ]


def test_wrong_numbers_say_how_wrong_and_where() -> None:
    answer = EXPECTED.float()
    answer[0, 2] += 0.031
    answer[1, 0] -= 0.01
    assert complaint(answer, "gradient of Q").splitlines() == [
        "the gradient of Q is wrong in 2 of 6 places",
        "largest error 0.031 at [0, 2]: got 3.031, expected 3",
        "that is 31,000 times the tolerance of 1e-06",
        "only at 0, 2 along axis 1, the others of its 3 are right",
    ]
