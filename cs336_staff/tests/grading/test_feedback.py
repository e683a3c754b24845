"""What a student reads of a hidden test says nothing that the submission chose while it saw the inputs."""

import pytest
import torch

from cs336_kit.engine.case import Case
from cs336_kit.engine.result import Check, Outcome, Result
from cs336_kit.engine.suite import Test, run
from cs336_staff.grading.feedback import for_student
from cs336_staff.sandbox.submission import Submission
from cs336_staff.tests.sandbox.conftest import ROOT

SUBMISSION = Submission("x", {"adapters.py": b"def run_softmax(x, dim):\n    return helper(x)\n"}, "adapters")
X = torch.zeros(2, 3)
CASE = Case("softmax/a", "run_softmax", {"in_features": X}, None, {"answer": X.double()}, {"answer": X.double()})
# What a submission can answer, twice with something else that it chose.
ANSWERS = {
    "shape": ([torch.zeros(31, 7), torch.zeros(5)], "the answer does not have the expected shape"),
    "dtype": ([X.int(), X.double()], "the answer does not have the dtype of the inputs"),
    "numbers": ([X + 0.125, torch.tensor([[0, 0, 0], [0, 1, 0.0]])], "the answer is wrong"),
    "not finite": ([X / 0, torch.tensor([[0, 0, 0], [0, torch.inf, 0.0]])], "the answer is NaN or infinite"),
    "no tensor": (["secret", [1], None], "the answer is not a tensor: is a `return` missing?"),
}


def told(answer: object, stored: bool = True) -> Result:
    test = Test(
        "test_softmax_of_any_shape[one-dimension]",
        lambda case: case.check(answer),
        ("x.py", 1),
        hidden=True,
        stored=lambda: CASE,
    )
    return for_student(run(test, ROOT), SUBMISSION, stored)


@pytest.mark.parametrize("kind", ANSWERS)
def test_of_an_answer_only_its_kind_is_told(kind: str) -> None:
    answers, headline = ANSWERS[kind]
    results = [told(answer) for answer in answers]
    assert {result.text for result in results} == {f"{headline}\n" + "\n".join(results[0].inputs)}
    assert len({result.staff for result in results}) == len(answers)


def test_a_case_that_the_submission_chose_is_not_told() -> None:
    assert "the case is softmax/a" in told(X + 1).text
    assert "case" not in told(X + 1, stored=False).text


@pytest.mark.parametrize(
    ("kind", "functions", "headline"),
    [
        ("ValueError", [("adapters.py", "run_softmax")], "ValueError in run_softmax of adapters.py"),
        ("ValueError", [("adapters.py", "run_softmax"), ("a.py", "f")], "ValueError in run_softmax of adapters.py"),
        ("ValueError", [("adapters.py", "helper")], "ValueError"),
        ("ValueError", [("adapters.py", "run_.*")], "ValueError"),
        ("Secret", [], "an exception"),
        ("BlockingIOError", [], "an exception"),
    ],
)
def test_of_an_exception_class_and_function_are_told(
    kind: str, functions: list[tuple[str, str]], headline: str
) -> None:
    result = Result(
        *("test_hidden_softmax[a]", "softmax", True, False, 1.0, Outcome.FAILED, Check.CALL, f"{kind}: 0.125"),
        details=("adapters.py:77",),
        raised=kind,
        functions=tuple(functions),
    )
    shown = for_student(result, SUBMISSION, stored=True)
    assert shown.text == headline
    assert "0.125" in shown.staff
