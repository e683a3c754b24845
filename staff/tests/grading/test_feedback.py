"""What a student reads: the costliest first, all of it once, and nothing that was chosen after seeing hidden inputs."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch

from staff.tests.grading.test_gradebook import GRADING, scored
from staff.tests.sandbox.conftest import ROOT
from whichline.engine.assignment import load_problems
from whichline.engine.case import Case
from whichline.engine.finding import Finding
from whichline.engine.result import Check, Outcome, Result
from whichline.engine.suite import Test, run
from whichline_grader.grading.feedback import feedback, quote_code
from whichline_grader.grading.graded import Grading, Notes, describe_for_student
from whichline_grader.grading.report import Report
from whichline_grader.grading.results_json import make_results_json
from whichline_grader.sandbox.submission import MAX_FUNCTIONS, Submission

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
PROBLEMS = load_problems(ROOT)
WRONG = "the answer is wrong in {} of 91 places"
SEE = "uv run cs336 debug --case softmax/2d"


def grade_answer(answer: object, stored: bool = True) -> Result:
    name = "test_softmax_of_any_shape[one-dimension]"
    test = Test(name, lambda case: case.check(answer), ("x.py", 1), hidden=True, stored=lambda: CASE)
    return describe_for_student(run(test, ROOT), SUBMISSION, stored)


@pytest.mark.parametrize("kind", ANSWERS)
def test_of_an_answer_only_its_kind_is_told(kind: str) -> None:
    answers, headline = ANSWERS[kind]
    results = [grade_answer(answer) for answer in answers]
    assert {result.text for result in results} == {f"{headline}\n" + "\n".join(results[0].inputs)}
    assert len({result.staff for result in results}) == len(answers)


def test_a_case_that_the_submission_chose_is_not_told() -> None:
    assert "the case is softmax/a" in grade_answer(X + 1).text
    assert "case" not in grade_answer(X + 1, stored=False).text


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
def test_an_exceptions_class_and_function_are_told(kind: str, functions: list[tuple[str, str]], headline: str) -> None:
    told = {"details": ("adapters.py:77",), "raised": kind, "functions": tuple(functions)}
    result = failed("test_hidden_softmax[a]", f"{kind}: 0.125", check=Check.CALL, **told)
    shown = describe_for_student(result, SUBMISSION, stored=True)
    assert shown.text == headline
    assert "0.125" in shown.staff


NAMES = [f"h{number:03x}" for number in range(1 << 10)]
SPELLING = {
    "in a comment": {"adapters.py": "# " + " ".join(f"def {name}" for name in NAMES)},
    "in a text": {"adapters.py": repr(" ".join(f"def {name}" for name in NAMES))},
    "as functions": {"adapters.py": "\n".join(f"def {name}(): ..." for name in NAMES)},
    "in many files": {f"{name}.py": f"def {name}(): ..." for name in NAMES},
}


@pytest.mark.parametrize("way", SPELLING)
def test_a_hidden_input_chooses_what_is_told_among_few_names(way: str) -> None:
    files = {"adapters.py": "", **SPELLING[way]}
    files["adapters.py"] = "def run_softmax(x, dim): ...\n" + files["adapters.py"]
    submission = Submission("x", {path: source.encode() for path, source in files.items()}, "adapters")
    result = failed("test_hidden_softmax[a]", "", check=Check.CALL, raised="ValueError")
    chosen = [(f"{name}.py" if way == "in many files" else "adapters.py", name) for name in NAMES]
    every = [replace(result, functions=(("adapters.py", "run_softmax"), each)) for each in chosen]
    told = {describe_for_student(each, submission, stored=True).headline for each in every}
    assert "ValueError in run_softmax of adapters.py" in told
    assert len(told) <= MAX_FUNCTIONS


def failed(
    test: str, headline: str, problem: str = "softmax", check: Check = Check.ANSWER, points: float = 0.25, **more: Any
) -> Result:
    ended = (points, Outcome.FAILED, check, headline)
    more = {"details": tuple(f"detail {i}" for i in range(90))} | more
    return Result(test, problem, "hidden" in test, PROBLEMS[problem].bonus, *ended, **more)


def graded(*rows: Result, **notes: object) -> Grading:
    """The rows, and one test that passes of every other problem."""
    others = [each for each in PROBLEMS.values() if each.id not in {row.problem for row in rows}]
    passed = [Result(f"test_{each.id}", each.id, False, each.bonus, each.points, Outcome.PASSED) for each in others]
    return scored(replace(GRADING, results=[*rows, *passed], notes=replace(Notes(), **notes)))


def unwritten(problem: str, *tests: str) -> list[Result]:
    headline = f"not implemented yet: write run_{problem} in adapters.py"
    return [failed(test, headline, problem, Check.NOT_WRITTEN, details=()) for test in tests]


def found(problem: str, number: int = 0, tests: Iterable[str] = (), **more: object) -> Finding:
    said = (f"{problem} {number} is wrong.",)
    place = {"file": "adapters.py", "line": 3, "code": ("adapters.py:3, in run", "    x + 1", "    ^^^^^")}
    return Finding(problem, f"{problem}-{number}", said, tests=(*tests,), question="Why?", **place | more)  # type: ignore[arg-type]


def render(*rows: Result, **notes: object) -> str:
    return feedback(Report(graded(*rows, **notes), PROBLEMS))


def costs(text: str) -> list[str]:
    return re.findall(r"^- \*\*(.*?)\*\*", text, re.MULTILINE)


def test_one_mistake_fits_into_forty_lines_with_its_cost_its_line_and_how_to_see_it() -> None:
    public = [failed(f"test_softmax[{i}d]", WRONG.format(i), details=("numbers",), see=SEE) for i in range(1, 9)]
    hidden = [failed(f"test_hidden_softmax[{i}d]", "the answer is wrong") for i in range(1, 9)]
    way = (*(line for i in range(12) for line in (f"adapters.py:{i}, in f", "    f(x)")), "    ^^^^")
    bonus = [failed(f"test_{id}", "Error: 7", id) for id, problem in PROBLEMS.items() if problem.bonus]
    explanations = [found("softmax", tests=[row.test for row in public], code=way)]
    explanations += [found(row.problem, i, [row.test]) for i, row in enumerate(bonus, 1)]
    text = render(*public, *hidden, *bonus, explanations=tuple(explanations))
    assert text.count("\n") <= 40
    assert f"- **4.00 points lost, 2.00 of them in hidden tests**: Softmax. To see it: `{SEE}`\n" in text
    assert "adapters.py:11, in f\n    f(x)\n    ^^^^\nsoftmax 0 is wrong.\n  Think: Why?\n```" in text
    assert "the answer is wrong" not in text  # it has been told why
    assert text.count("- **0.25 bonus points lost**: ") == len(bonus)


def test_a_right_tree_that_loses_a_little_gets_ten_lines() -> None:
    linear = failed("test_linear", "Error: 7", "linear", points=0.24)
    softmax = failed("test_softmax[f16]", WRONG.format(3), points=0.2)
    text = render(softmax, linear, explanations=(found("linear", tests=["test_linear"]),))
    assert text.count("\n") <= 11
    assert text.splitlines()[-1] == (
        "- **0.44 points lost** for small things: Linear layer: `adapters.py:3 linear 0 is wrong.`; "
        "Softmax: `the answer is wrong in 3 of 91 places` in `test_softmax[f16]`"
    )


def test_what_costs_most_is_first_and_what_is_told_later_takes_a_line() -> None:
    ids = ["linear", "softmax", "rope", "multihead_self_attention", "scaled_dot_product_attention"]
    rows = [failed(f"test_{id}", WRONG.format(1), id, points=i) for i, id in enumerate(ids, 1)]
    rows += unwritten("blockwise_attention", "test_blockwise_attention")
    text = render(*rows, explanations=tuple(found(id, i, [f"test_{id}"]) for i, id in enumerate(ids)))
    assert costs(text) == [f"{i}.00 points lost" for i in (5, 4, 3, 2, 1)]
    assert text.count("  Think: Why?") == 3
    assert "- **1.00 points lost**: Linear layer: `adapters.py:3 linear 0 is wrong.`. To see it: " in text
    assert all(text.count(f"{id} {i} is wrong.") == 1 for i, id in enumerate(ids))
    assert text.count("\n") <= 60


def test_a_deduction_has_its_function_and_line_however_much_else_is_wrong() -> None:
    ids = ["scaled_dot_product_attention", "multihead_self_attention", "rope", "linear"]
    rows = [failed(f"test_{id}_{letter}", f"Error{letter}: it", id) for id in ids for letter in "abcdefgh"]
    passed = Result("test_softmax", "softmax", False, False, 2.0, Outcome.PASSED)
    line = "torch.softmax in adapters.py:3: return torch.softmax(x, dim)"
    text = render(*rows, passed, stdout="spam\n" * 5000, forbidden={"softmax": {"softmax": (line,)}})
    assert f"softmax: -2.00 points for softmax. Write this yourself, without:\n{line}\n" in text
    assert (text.count("-2.00"), text.count(line)) == (1, 1)
    assert text.index(line) < text.index("Error")


def test_a_headline_over_several_tests_is_true_of_each() -> None:
    shapes = [failed(f"test_softmax[{i}]", f"the answer has shape ({i},), expected (7,)") for i in range(5)]
    shapes += [failed("test_softmax[5]", "the answer has dtype float64, expected float32")]
    text = render(*shapes, *[failed(f"test_softmax_gradients[{i}]", "the gradient is missing") for i in range(2)])
    assert "`the answer has shape (0,), expected (7,), for example` in 5 of `test_softmax`" in text
    assert "`the gradient is missing` in 2 of `test_softmax_gradients`" in text
    assert "`the answer has dtype float64, expected float32` in `test_softmax[5]`" in text
    assert text.count("test_softmax[0]:\ndetail 0\n") == 1
    assert text.count("detail ") == 11  # of the costliest


def test_a_test_that_a_finding_does_not_name_may_end_at_the_same_line_with_the_same_exception() -> None:
    code = ("adapters.py:3, in run", "    x + 1", "    ^")
    rows = [failed(f"test_softmax[{i}]", "NameError: x", check=Check.CALL, place="adapters.py:3") for i in range(2)]
    one = found("softmax", tests=["test_softmax[0]"], code=code)
    explanation = replace(one, said=("NameError: x", "It is always."))
    assert costs(render(*rows, explanations=(explanation,))) == ["0.50 points lost"]


def test_what_grading_alone_refuses_is_not_to_be_seen_at_home() -> None:
    said = "adapters.py:3 uses a.log: in grading there are no files, network or processes"
    details = ("PermissionError: [Errno 1] Operation not permitted: '/a.log'", "adapters.py:3, in <module>", "    f()")
    text = render(failed("test_softmax[2d]", said, check=Check.CALL, details=details, place="adapters.py:3", see=SEE))
    assert f"- **0.25 points lost**: Softmax: `adapters.py:3 {said}` in `test_softmax[2d]`\n" in text


def test_what_hidden_tests_alone_say_is_told() -> None:
    error, hidden = "RuntimeError", [("the matrix is held", 2), ("RuntimeError in run_softmax of adapters.py", 1)]
    rows = [failed(f"test_softmax[{i}]", "RuntimeError: no memory", check=Check.CALL, raised=error) for i in range(2)]
    rows += [failed(f"test_hidden_softmax[{n}]", headline, check=Check.CALL, points=n) for headline, n in hidden]
    text = render(*rows)
    assert costs(text) == ["3.50 points lost, 3.00 of them in hidden tests"]
    assert "; hidden tests say `the matrix is held`. To see it: " in text
    assert "RuntimeError in" not in text


def test_what_is_not_written_is_what_each_test_says() -> None:
    attention, multihead = "scaled_dot_product_attention", "multihead_self_attention"
    rows = unwritten("softmax", "test_softmax", "test_hidden_softmax") + unwritten("rope", "test_rope")
    rows += [replace(rows[0], test="test_attention", problem=attention)]  # all its tests, and it is written
    rows += [replace(rows[2], test="test_multihead_with_rope", problem=multihead)]
    rows += [replace(rows[0], test="test_multihead", problem=multihead)]
    for name in ("split", "merge"):
        said = f"not implemented yet: write {name} in adapters.py"
        rows += [replace(rows[0], test=f"test_{name}", problem=multihead, headline=said)]
    text = render(*rows)
    before = {"run_softmax": "Softmax, Scaled dot-product attention, ", "run_rope": "Rotary position embedding, "}
    for name, others in (before | {"split": "", "merge": ""}).items():
        title = f"{others}Causal multi-head self-attention"
        assert text.count(f"**: {title}: `not implemented yet: write {name} in adapters.py`\n") == 1
    assert costs(text)[:2] == ["1.00 points lost, 0.25 of them in hidden tests", "0.50 points lost"]


def test_a_bonus_problem_that_is_not_written_is_named_and_no_more() -> None:
    text = render(*unwritten("blockwise_attention", *[f"test_blockwise_attention[{i}]" for i in range(40)]))
    assert "Bonus problems that are not written: Blockwise attention." in text
    assert not costs(text)
    assert "test_blockwise" not in text


def test_hidden_tests_are_counted_with_the_public_ones_that_fail_like_them() -> None:
    rows = [
        failed("test_softmax[a]", WRONG.format(1)),
        failed("test_softmax[b]", "IndexError: 3", check=Check.CALL),
        replace(failed("test_softmax[c]", ""), outcome=Outcome.PASSED),
        failed("test_hidden_softmax[a]", "the answer is wrong"),
        failed("test_hidden_softmax[other]", "the answer is wrong"),
        failed("test_hidden_softmax[b]", "IndexError in run_softmax of adapters.py", check=Check.CALL),
        failed("test_hidden_softmax[c]", "the answer is wrong"),
    ]
    text = render(*rows)
    hidden = [f"{points} of them in hidden tests" for points in ("0.75 points lost, 0.50", "0.50 points lost, 0.25")]
    assert costs(text) == [*hidden, "0.25 points lost"]
    alone = "`the answer is wrong` in hidden tests alone: `test_hidden_softmax[c]`"
    assert f"**0.25 points lost**: Softmax: {alone}\n" in text


def test_printed_text_is_cut_and_last() -> None:
    text = render(failed("test_softmax[1d]", WRONG.format(1)), stdout="spam\n" * 50)
    assert text.count("spam") == 5
    assert text.endswith("spam\n(45 more lines)\n```\n")
    assert text.index("detail 0") < text.index("Your code wrote to stdout during the public tests:")


@pytest.mark.parametrize(
    ("error", "place", "times"),
    [("IndexError: 3", "core.py:7", 1), ("IndexError: x", "core.py:7", 2), ("IndexError: 3", "core.py:8", 2)],
)
@pytest.mark.parametrize("is_found", [True, False])
def test_the_same_exception_on_the_same_line_is_told_once(error: str, place: str, times: int, is_found: bool) -> None:
    rows, findings = [], []
    for id, (kind, where) in {"softmax": ("IndexError: 3", "core.py:7"), "linear": (error, place)}.items():
        code = ("adapters.py:9, in f", "    g()", f"{where}, in g", "    x[3]")
        rows += [failed(f"test_{id}[{i}]", kind, id, Check.CALL, details=code, place=where) for i in range(9)]
        file, _, line = where.partition(":")
        findings.append(Finding(id, f"{id}-raises-indexerror", (kind,), file, int(line), "g", code=code))
    text = render(*rows, explanations=tuple(findings) if is_found else ())
    assert text.count("IndexError") == len(costs(text)) == times
    assert text.count("x[3]") == (times if is_found else 1)


@pytest.mark.parametrize("text", ["``` <script>", "`a` ``b``", "x\ny", "", "`"])
def test_no_text_of_a_submission_ends_its_code(text: str) -> None:
    rows = [failed(f"test_softmax_{i}", f"E{chr(97 + i) * 2}: {text}", check=Check.CALL) for i in range(20)]
    lines = [line for line in render(*rows).splitlines() if line.startswith("- ")]
    assert len(lines) == len(rows)
    for line in lines:
        code = line.partition("Softmax: ")[2].rpartition(" in `test_")[0]
        fence = code[: len(code) - len(code.lstrip("`"))]
        assert code.endswith(fence)
        assert fence not in code.removeprefix(fence).removesuffix(fence)


def test_a_long_line_of_a_submission_ends_with_a_whole_word() -> None:
    assert quote_code("word " * 99).endswith(" word …`")


def test_gradescope_has_a_box_for_the_public_and_one_for_the_hidden_tests_of_a_problem() -> None:
    third = 1 / 3
    passed = replace(failed("test_softmax[1d]", ""), outcome=Outcome.PASSED, check=None, maximum=third)
    wrong = [replace(failed(f"test_softmax[{i}d]", WRONG.format(i)), maximum=third) for i in (2, 3)]
    gradient = failed("test_softmax_gradients[a]", WRONG.format(9))
    grading = graded(passed, *wrong, gradient, failed("test_hidden_softmax[a]", "the answer is wrong"))
    report = make_results_json(Report(grading, PROBLEMS))
    first, hidden, *others = report["tests"]
    assert (first["name"], first["number"]) == ("Softmax: public tests", "1.1")
    assert (first["score"], first["max_score"]) == (0.33, 1.25)
    assert (first["status"], first["visibility"]) == ("failed", "visible")
    assert first["output"].startswith(
        "1 of 4 tests pass.\n0.67 points lost in test_softmax\n0.25 points lost in test_softmax_gradients\n\n"
        "test_softmax[2d]:\nthe answer is wrong in 2 of 91 places\n"
    )
    assert "The same, but for its numbers, in test_softmax[3d], test_softmax_gradients[a]." in first["output"]
    assert first["extra_data"]["lost"] == {"test_softmax": 2 * third, "test_softmax_gradients": 0.25}
    assert (first["extra_data"]["points"], first["extra_data"]["outcomes"]["test_softmax[3d]"]) == (third, "failed")
    assert (hidden["name"], hidden["visibility"]) == ("Softmax: hidden tests", "after_published")
    assert "hidden" not in first["output"]
    assert [test["tags"][0] for test in report["tests"]] == ["softmax", *PROBLEMS]
    assert {(test["status"], test["output"]) for test in others} == {("passed", "")}
    assert "max_score" not in report  # Gradescope's specification has none here


def test_why_a_submission_was_refused_is_said_once() -> None:
    rows = [failed(f"test_{id}[a]", "not run: no zip", id) for id in PROBLEMS]
    assert feedback(Report(graded(*rows, refused="no zip"), PROBLEMS)).count("no zip") == 1
