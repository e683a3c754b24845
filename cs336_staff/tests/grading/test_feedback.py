"""What a student reads: each kind of failure once, and nothing that the submission chose while it saw hidden inputs."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
import torch

from cs336_kit.engine.assignment import load_problems
from cs336_kit.engine.case import Case
from cs336_kit.engine.result import Check, Explanation, Outcome, Result
from cs336_kit.engine.suite import Test, run
from cs336_staff.grading.feedback import feedback
from cs336_staff.grading.grading import Grading, Notes
from cs336_staff.grading.hidden_results import for_student
from cs336_staff.grading.results_json import results
from cs336_staff.sandbox.submission import Submission
from cs336_staff.tests.grading.test_gradebook import GRADING
from cs336_staff.tests.sandbox.conftest import ROOT

SUBMISSION = Submission("x", {"adapters.py": b"def run_softmax(x, dim):\n    return helper(x)\n"}, "adapters")
X = torch.zeros(2, 3)
CASE = Case("softmax/a", "run_softmax", {"in_features": X}, None, {"answer": X.double()})
# What a submission can answer, twice with something else that it chose.
ANSWERS = {
    "shape": ([torch.zeros(31, 7), torch.zeros(5)], "the answer does not have the expected shape"),
    "dtype": ([X.int(), X.double()], "the answer does not have the dtype of the inputs"),
    "numbers": ([X + 0.125, torch.tensor([[0, 0, 0], [0, 1, 0.0]])], "the answer is wrong"),
    "not finite": ([X / 0, torch.tensor([[0, 0, 0], [0, torch.inf, 0.0]])], "the answer is NaN or infinite"),
    "no tensor": (["secret", [1], None], "the answer is not a tensor: is a `return` missing?"),
}


def tell(answer: object, stored: bool = True) -> Result:
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
    results = [tell(answer) for answer in answers]
    assert {result.text for result in results} == {f"{headline}\n" + "\n".join(results[0].inputs)}
    assert len({result.staff for result in results}) == len(answers)


def test_a_case_that_the_submission_chose_is_not_told() -> None:
    assert "the case is softmax/a" in tell(X + 1).text
    assert "case" not in tell(X + 1, stored=False).text


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


# In a hundred lines, and in a box for each test function

PROBLEMS = load_problems(ROOT)
WRONG = "the answer is wrong in {} of 91 places"


def failed(test: str, headline: str, problem: str = "softmax", check: Check = Check.ANSWER, lines: int = 5) -> Result:
    hidden, bonus = "hidden" in test, PROBLEMS[problem].bonus
    details = tuple(f"detail {i} of {test}" for i in range(lines))
    return Result(test, problem, hidden, bonus, 0.25, Outcome.FAILED, check, headline, details)


def graded(*rows: Result, **notes: object) -> Grading:
    """The rows, and one test that passes of every other problem."""
    having = {row.problem for row in rows}
    others = [
        Result(f"test_{id}", id, False, problem.bonus, problem.points, Outcome.PASSED)
        for id, problem in PROBLEMS.items()
        if id not in having
    ]
    return replace(GRADING, results=[*rows, *others], notes=replace(Notes(), **notes))


def unwritten(problem: str, tests: Iterable[str]) -> list[Result]:
    headline = f"not implemented yet: write run_{problem} in adapters.py"
    return [failed(test, headline, problem, Check.NOT_WRITTEN, lines=0) for test in tests]


def test_of_each_kind_of_failure_there_is_one_example_and_the_other_tests_are_named() -> None:
    public = [failed(f"test_softmax[{i}d]", WRONG.format(i)) for i in range(1, 5)]
    dtype = failed("test_softmax[5d]", "the answer has dtype float64", check=Check.OUTPUT)
    hidden = [failed(f"test_hidden_softmax[{i}d]", "the answer is wrong") for i in range(1, 4)]
    text = feedback(graded(*public, dtype, failed("test_softmax_gradients[a]", WRONG.format(9)), *hidden), PROBLEMS)
    assert [line for line in text.splitlines() if line.startswith(("- ", "test_"))] == [
        "- `the answer is wrong in 1 of 91 places`: 4 of `test_softmax`",
        "test_softmax[1d]:",
        "- `the answer has dtype float64`: `test_softmax[5d]`",
        "test_softmax[5d]:",
        "- `the answer is wrong in 9 of 91 places`: `test_softmax_gradients[a]`",
        "test_softmax_gradients[a]:",
        "- `the answer is wrong`: hidden: 3 of `test_hidden_softmax`",
        "test_hidden_softmax[1d]:",
    ]
    assert text.count("detail 0") == 4


def found(problem: str, lines: int, number: int = 0) -> Explanation:
    rows = (f"{problem} {number} measured {i}" for i in range(lines - 1))
    return Explanation(problem, f"{problem}-{number}", (*rows, f"  Read:  section {number} on {problem}"))


def test_findings_are_first_and_whole_however_much_else_there_is_to_tell() -> None:
    rows = [
        failed(f"test_{id}_{letter}[x]", WRONG.format(i), id, lines=90)
        for id in PROBLEMS
        for i, letter in enumerate("abcdefgh")
    ]
    explanations = tuple(found(id, 7, number) for id in PROBLEMS for number in range(3))
    text = feedback(graded(*rows, explanations=explanations, stdout="spam\n" * 5000), PROBLEMS)
    for explanation in explanations:
        assert "\n".join(explanation.lines) in text
    explanations = tuple(found(id, 3) for id in PROBLEMS)
    text = feedback(graded(*rows[:16], explanations=explanations, stdout="spam\n" * 5000), PROBLEMS)
    assert text.count("\n") <= 100
    for section in text.split("## ")[1:3]:
        assert section.index("measured") < section.index("- `the answer")
        assert section.count("- `the answer is wrong") == 8
    assert text.count("test_softmax_a[x]:\ndetail 0") == text.count("test_scaled_dot_product_attention_a[x]:\n") == 1


def test_numbers_and_printed_text_are_cut_and_what_is_printed_is_last() -> None:
    text = feedback(graded(failed("test_softmax[1d]", WRONG.format(1), lines=90), stdout="spam\n" * 50), PROBLEMS)
    assert (text.count("detail "), text.count("spam")) == (12, 11)
    assert "(78 more lines)\n```" in text
    assert text.index("detail 0") < text.index("Your code wrote to stdout during the public tests:")


@pytest.mark.parametrize(
    ("error", "place", "times"),
    [("IndexError: 3", "core.py:7", 1), ("IndexError: 4", "core.py:7", 2), ("IndexError: 3", "core.py:8", 2)],
)
def test_only_the_same_exception_on_the_same_line_is_a_repetition(error: str, place: str, times: int) -> None:
    def raised(problem: str, error: str, place: str) -> Explanation:
        lines = (
            f"It fails for {problem}: `{error}`.",
            "  adapters.py:9, in f",
            "      g()",
            f"  {place}, in g",
            "      x[3]",
        )
        return Explanation(problem, f"{problem}-fails", lines)

    rows = [failed(f"test_{id}", "IndexError: 3", id, Check.CALL) for id in ("softmax", "linear")]
    findings = raised("softmax", "IndexError: 3", "core.py:7"), raised("linear", error, place)
    assert feedback(graded(*rows, explanations=findings), PROBLEMS).count("x[3]") == times


def test_a_bonus_problem_that_is_not_written_is_a_row_and_no_more() -> None:
    text = feedback(graded(*unwritten("blockwise_attention", ["test_blockwise_attention[a]"] * 40)), PROBLEMS)
    assert "| Blockwise attention (bonus) | 0.00 / 3 | not written |" in text
    assert "test_blockwise" not in text
    assert "##" not in text


def test_of_a_problem_that_is_not_written_the_function_is_named_once() -> None:
    rows = unwritten("softmax", [f"test_softmax[{i}]" for i in range(10)])
    hidden = failed("test_hidden_softmax[a]", "not implemented yet", "softmax", Check.NOT_WRITTEN, lines=0)
    text = feedback(graded(*rows, hidden), PROBLEMS)
    assert text.count("not implemented yet") == text.count("write run_softmax in adapters.py") == 1


def test_an_error_that_breaks_every_problem_is_explained_once() -> None:
    error, place = "SyntaxError: this needs Python 3.12", "core.py:6, in <module>"
    rows = [
        replace(failed(f"test_{id}_{kind}[{i}]", error, id, Check.CALL), details=(place, "    match x:"))
        for id in PROBLEMS
        for i in range(15)
        for kind in "ab"
    ]
    explained = tuple(
        Explanation(id, f"{id}-fails", (f"It fails for {id}: `{error}`.", f"  {place}", "      match x:"))
        for id in PROBLEMS
    )
    text = feedback(graded(*rows, explanations=explained), PROBLEMS)
    assert text.count("match x:") == 1
    assert text.count(f"- `{error}, at {place.partition(',')[0]}`: 30 tests") == len(PROBLEMS)


def test_without_findings_there_are_a_hundred_lines_at_most() -> None:
    rows = [
        failed(f"test_{id}_{chr(97 + i)}[x]", f"Error{chr(97 + i)}: it is", id, Check.CALL, lines=90)
        for id in PROBLEMS
        for i in range(12)
    ]
    text = feedback(graded(*rows, stdout="spam\n" * 5000), PROBLEMS)
    assert text.count("\n") <= 100
    assert text.endswith("There is more, but 100 lines are enough to start with.\n")
    text = feedback(graded(*rows[:24]), PROBLEMS)
    assert text.count("\n") <= 100
    assert "test_softmax_a[x]:\n" in text
    assert "(66 more lines)\n```" in text
    assert all(f"`{row.test}`" in text for row in rows[:24])


@pytest.mark.parametrize("text", ["``` <script>", "`a` ``b``", "x\ny", "", "`"])
def test_no_text_of_a_submission_ends_its_code(text: str) -> None:
    rows = [failed(f"test_softmax_{i}", f"E{chr(97 + i) * 2}: {text}", lines=0, check=Check.CALL) for i in range(40)]
    for line in feedback(graded(*rows), PROBLEMS).splitlines():
        if line.startswith("- "):
            code = line.removeprefix("- ").rpartition(": `test_")[0]
            fence = code[: len(code) - len(code.lstrip("`"))]
            assert code.endswith(fence)
            assert fence not in code.removeprefix(fence).removesuffix(fence)


def test_gradescope_has_a_box_for_the_public_and_one_for_the_hidden_tests_of_a_problem() -> None:
    third = 1 / 3
    passed = replace(failed("test_softmax[1d]", ""), outcome=Outcome.PASSED, check=None, maximum=third)
    wrong = [replace(failed(f"test_softmax[{i}d]", WRONG.format(i)), maximum=third) for i in (2, 3)]
    gradient = failed("test_softmax_gradients[a]", WRONG.format(9))
    grading = graded(passed, *wrong, gradient, failed("test_hidden_softmax[a]", "the answer is wrong"))
    report = results(grading, PROBLEMS)
    first, hidden, *others = report["tests"]
    assert (first["name"], first["number"], first["score"], first["max_score"]) == (
        "Softmax: public tests",
        "1.1",
        0.33,
        1.25,
    )
    assert (first["status"], first["visibility"]) == ("failed", "visible")
    assert first["output"].startswith(
        "1 of 4 tests pass.\n0.67 points lost in test_softmax\n0.25 points lost in test_softmax_gradients\n\n"
        "test_softmax[2d]:\nthe answer is wrong in 2 of 91 places\n"
    )
    assert "The same in test_softmax[3d]." in first["output"]
    assert first["extra_data"]["lost"] == {"test_softmax": 2 * third, "test_softmax_gradients": 0.25}
    assert first["extra_data"]["points"] == third
    assert first["extra_data"]["outcomes"]["test_softmax[3d]"] == "failed"
    assert (hidden["name"], hidden["visibility"]) == ("Softmax: hidden tests", "after_published")
    assert "hidden" not in first["output"]
    assert [test["tags"][0] for test in report["tests"]] == ["softmax", *PROBLEMS]
    assert {(test["status"], test["output"]) for test in others} == {("passed", "")}
    assert "max_score" not in report  # Gradescope's specification has none here


def test_why_a_submission_was_refused_is_said_once() -> None:
    rows = [failed(f"test_{id}[a]", "not run: no zip", id) for id in PROBLEMS]
    assert feedback(graded(*rows, refused="no zip"), PROBLEMS).count("no zip") == 1
