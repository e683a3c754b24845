"""What a student reads: each kind of failure once, in a hundred lines, and a box for each test function."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from cs336_kit.engine.assignment import load_problems
from cs336_kit.engine.result import Check, Explanation, Outcome, Result
from cs336_staff.grading.gradebook import Grading, Notes
from cs336_staff.grading.report import feedback, results
from cs336_staff.tests.grading.test_gradebook import GRADING
from cs336_staff.tests.sandbox.conftest import ROOT

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


def test_one_mistake_is_shown_once_and_the_other_tests_are_named() -> None:
    public = [failed(f"test_softmax[{i}d]", WRONG.format(i)) for i in range(1, 5)]
    hidden = [failed(f"test_hidden_softmax[{i}d]", "the answer is wrong") for i in range(1, 4)]
    text = feedback(graded(*public, failed("test_softmax_gradients[a]", WRONG.format(9)), *hidden), PROBLEMS)
    assert "`test_softmax[1d]`, and 7 more in the same way:" in text
    assert text.count("detail 0") == 1
    others = "3 of `test_softmax`, `test_softmax_gradients[a]`; hidden: 3 of `test_hidden_softmax`"
    assert f"The others: {others}." in text


def test_kinds_of_failure_are_told_apart() -> None:
    rows = [failed("test_softmax[1d]", "ValueError: 1.5"), failed("test_softmax[2d]", "the answer has dtype float64")]
    hidden = failed("test_hidden_softmax[a]", "ValueError in run_softmax of adapters.py")
    text = feedback(graded(*rows, hidden), PROBLEMS)
    assert "`test_softmax[1d]`, and 1 more in the same way:" in text
    assert "`test_softmax[2d]`:\n" in text


def test_a_bonus_problem_that_is_not_written_is_a_row_and_no_more() -> None:
    text = feedback(graded(*unwritten("blockwise_attention", ["test_blockwise_attention[a]"] * 40)), PROBLEMS)
    assert "| Blockwise attention (bonus) | 0.0 / 3 | not written |" in text
    assert "test_blockwise" not in text
    assert "##" not in text


def test_of_a_problem_that_is_not_written_the_function_is_named_once() -> None:
    rows = unwritten("softmax", [f"test_softmax[{i}]" for i in range(10)])
    hidden = failed("test_hidden_softmax[a]", "not implemented yet", "softmax", Check.NOT_WRITTEN, lines=0)
    text = feedback(graded(*rows, hidden), PROBLEMS)
    assert text.count("not implemented yet") == text.count("write run_softmax in adapters.py") == 1


def test_an_error_that_breaks_every_problem_is_explained_once() -> None:
    error = "SyntaxError: this needs Python 3.12 (core.py, line 6)"
    rows = [failed(f"test_{id}[{i}]", error, id, Check.CALL) for id in PROBLEMS for i in range(30)]
    explained = tuple(Explanation(id, f"{id}-fails", (f"It fails: `{error}`.", "frame")) for id in PROBLEMS)
    text = feedback(graded(*rows, explanations=explained), PROBLEMS)
    assert text.count("frame") == 1
    assert text.count(f"- `{error}`: 30 tests") == len(PROBLEMS)


def test_whatever_fails_there_are_a_hundred_lines_at_most_and_the_first_are_in_full() -> None:
    rows = [
        failed(f"test_{id}_{chr(97 + i)}[x]", f"Error{chr(97 + i)}: it is", id, Check.CALL, lines=90)
        for id in PROBLEMS
        for i in range(8)
    ]
    text = feedback(graded(*rows, stdout="spam\n" * 5000), PROBLEMS)
    assert text.count("\n") == 100
    assert text.endswith("There is more, but 100 lines are enough to start with.\n")
    text = feedback(graded(*rows[:16]), PROBLEMS)
    assert text.count("\n") <= 100
    assert "`test_softmax_a[x]`:" in text
    assert "more lines)\n```" in text
    assert all(f"`{row.test}`" in text for row in rows[:16])


@pytest.mark.parametrize("text", ["``` <script>", "`a` ``b``", "x\ny", "", "`"])
def test_no_text_of_a_submission_ends_its_code(text: str) -> None:
    rows = [failed(f"test_softmax[{i}]", f"E{chr(97 + i) * 2}: {text}", lines=0, check=Check.CALL) for i in range(40)]
    for line in feedback(graded(*rows), PROBLEMS).splitlines():
        if line.startswith("- "):
            code = line.removeprefix("- ").rpartition(": `")[0]
            fence = code[: len(code) - len(code.lstrip("`"))]
            assert code.endswith(fence)
            assert fence not in code.removeprefix(fence).removesuffix(fence)


def test_gradescope_has_a_box_for_each_test_function() -> None:
    passed = replace(failed("test_softmax[1d]", ""), outcome=Outcome.PASSED, check=None)
    rows = [passed, failed("test_softmax[2d]", WRONG.format(7)), failed("test_softmax[3d]", WRONG.format(8))]
    report = results(graded(*rows, failed("test_hidden_softmax[a]", "the answer is wrong")), PROBLEMS)
    first, hidden, *others = report["tests"]
    assert (first["name"], first["score"], first["max_score"]) == ("Softmax: test_softmax", 0.25, 0.75)
    assert (first["status"], first["visibility"]) == ("failed", "visible")
    assert first["output"].startswith(
        "1 of 3 cases pass.\n\ntest_softmax[2d]:\nthe answer is wrong in 7 of 91 places\n"
    )
    assert first["output"].endswith("The same in test_softmax[3d].")
    outcomes = {"test_softmax[1d]": "passed", "test_softmax[2d]": "failed", "test_softmax[3d]": "failed"}
    assert first["extra_data"]["outcomes"] == outcomes
    assert (hidden["name"], hidden["visibility"]) == ("Softmax: test_hidden_softmax", "after_published")
    assert {(test["status"], test["output"]) for test in others} == {("passed", "")}
    assert "max_score" not in report  # Gradescope's specification has none here
