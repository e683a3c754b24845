"""The suite as data: what a folder of tests becomes, and what running one gives."""

import gc
import shutil
import weakref
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from staff.tests import ROOT
from whichline.engine.assignment import Problem, SuiteError
from whichline.engine.case import Case
from whichline.engine.errors import Stopped, StudentRaised
from whichline.engine.result import Check, Outcome, Result, result_from_json
from whichline.engine.suite import Suite, Test, load_suite, run

TESTS = """
import pytest
import adapters
@pytest.mark.cases("linear/*")
def test_linear(case):
    case.check(adapters.run_linear(**case.inputs))
def test_alone():
    assert adapters.answer() == 42, "expected 42"
"""
PROBLEM = Problem("linear", "Linear layer", 3.0, (), {"test_linear": 2.0, "test_alone": 1.0}, ())
NUMBERS = torch.ones(2, 2)


def right(d_in, d_out, weights, in_features):
    return in_features @ weights.T


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "fixtures" / "linear", tmp_path / "fixtures" / "linear")
    (tmp_path / "tests").mkdir()
    return tmp_path


def suite(folder: Path, tests: str = TESTS, remote: bool = False, **adapters) -> Suite:
    (folder / "tests" / "test_it.py").write_text(tests)
    return load_suite(folder, [folder / "tests"], {"linear": PROBLEM}, SimpleNamespace(**adapters), remote)


def results(suite: Suite) -> dict[str, Result]:
    return {test.name: suite.run(test) for test in suite.tests}


def test_a_function_with_cases_is_a_test_for_each_and_shares_its_points(folder):
    found = results(suite(folder, run_linear=right, answer=lambda: 42))
    assert list(found) == [f"test_linear[{case}]" for case in ("2d", "3d", "square", "vector")] + ["test_alone"]
    assert {result.outcome for result in found.values()} == {Outcome.PASSED}
    assert [result.maximum for result in found.values()] == [0.5] * 4 + [1.0]
    assert sum(result.points for result in found.values()) == 3.0
    assert {result.calls for result in found.values()} == {1}


@pytest.mark.parametrize(
    ("adapters", "test", "check", "headline"),
    [
        (
            {"run_linear": lambda **inputs: 2 * right(**inputs)},
            *("test_linear[3d]", Check.ANSWER, "the answer is wrong in 30 of 30 places"),
        ),
        ({"run_linear": right, "answer": lambda: 0}, "test_alone", Check.PROPERTY, "expected 42"),
        ({}, "test_alone", Check.NOT_WRITTEN, "not implemented yet: write answer in adapters.py"),
    ],
    ids=["a wrong answer", "an assert of the test's own", "a function that adapters lack"],
)
def test_what_fails_and_why(folder, adapters, test, check, headline):
    result = results(suite(folder, **adapters))[test]
    assert (result.outcome, result.check, result.points, result.headline) == (Outcome.FAILED, check, 0.0, headline)
    assert check is not Check.ANSWER or result.inputs[0] == "the case is linear/3d:"


def test_what_python_asks_of_every_module_is_no_function_to_write(folder):
    """Since Python 3.13, `import` asks what is in `sys.modules` for `__spec__`."""
    assert suite(folder, TESTS + "\nassert not hasattr(adapters, '__spec__')").tests


def test_ctrl_c_is_not_the_students(folder):
    with pytest.raises(KeyboardInterrupt):
        results(suite(folder, run_linear=Mock(side_effect=KeyboardInterrupt)))


@pytest.mark.parametrize(
    ("error", "remote", "outcome"),
    [
        *((error, False, Outcome.FAILED) for error in (ValueError("no"), SystemExit(0), RecursionError("deep"))),
        (StudentRaised("ValueError", "no", []), True, Outcome.FAILED),
        (Stopped("no answer in time"), True, Outcome.FAILED),
        (OSError("no worker"), True, Outcome.ERROR),
    ],
)
def test_an_exception_is_the_students_unless_it_does_not_come_from_their_process(folder, error, remote, outcome):
    result = results(suite(folder, remote=remote, run_linear=Mock(side_effect=error)))["test_linear[2d]"]
    assert result.outcome is outcome
    assert remote or (result.check, result.raised) == (Check.CALL, type(error).__name__)


def test_a_damaged_case_is_our_error(folder):
    (folder / "fixtures" / "linear" / "2d.safetensors").write_bytes(b"half")
    result = results(suite(folder, run_linear=right, answer=lambda: 42))["test_linear[2d]"]
    assert result.outcome is Outcome.ERROR
    assert "take it again from the handout" in result.headline


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        (f"import nothing_here\n{TESTS}", "cannot be imported: ModuleNotFoundError"),
        (TESTS.replace("linear/*", "lineal/*"), "no case matches lineal/"),
        ("def test_alone(tmp_path): pass", "test_alone asks for tmp_path; a test gets `case`"),
    ],
)
def test_a_suite_that_cannot_be_loaded_says_why(folder, tests, message):
    with pytest.raises(SuiteError, match=message):
        suite(folder, tests)


def test_a_result_survives_the_way_to_another_process(folder):
    for result in results(suite(folder, run_linear=lambda **inputs: None)).values():
        assert result_from_json(result.as_json()) == result


def test_kinds_of_drawn_cases_are_tests_of_their_own_and_share_its_points(folder):
    tests = """
import pytest
class Drawn:
    def examples(self): return []
class Wrong(Drawn):
    def examples(self): raise AssertionError("wrong")
@pytest.mark.cases({"vector": Drawn(), "matrix": Wrong()})
def test_linear(case): pass
def test_alone(): pass
"""
    points = {"test_linear[vector]": 1.0, "test_linear[matrix]": 0.0, "test_alone": 1.0}
    assert {name: result.points for name, result in results(suite(folder, tests)).items()} == points


def test_a_failure_keeps_no_tensor(folder):
    kept = []

    def failing():
        tensor = torch.ones(3)
        kept.append(weakref.ref(tensor))
        raise ValueError

    gc.disable()
    try:
        result = run(Test("test_x", failing, ("x.py", 1)), folder)
    finally:
        gc.enable()
    assert result.outcome is Outcome.FAILED
    assert kept[0]() is None


def wrong_answer_to(problem: str, inputs: dict[str, object]) -> Result:
    case = Case("odd/case", "run_odd", inputs, None, {"answer": NUMBERS.double()})
    test = Test("test_odd", lambda case: case.check(2 * NUMBERS), ("x.py", 1), stored=lambda: case, problem=problem)
    return run(test, ROOT)


@pytest.mark.parametrize("problem", ["linear", "multihead_self_attention", "scaled_dot_product_attention", "rope"])
@pytest.mark.parametrize(
    "inputs",
    [{"V": NUMBERS}, {"x": NUMBERS, "dim": 1}, {"x": NUMBERS, "training": True}, {"x": NUMBERS.long()}, {}],
    ids=["no mask", "dim", "training", "integers", "nothing"],
)
def test_no_name_among_the_inputs_means_anything_to_the_engine(problem, inputs):
    result = wrong_answer_to(problem, inputs)
    assert (result.outcome, result.check) == (Outcome.FAILED, Check.ANSWER)
    assert result.headline == "the answer is wrong in 4 of 4 places"
    assert result.on_paper == ()


def test_what_the_engine_raises_is_not_the_students():
    result = wrong_answer_to("linear", {"x": NUMBERS.to(torch.float8_e5m2)})
    assert result.outcome is Outcome.ERROR
    assert result.headline.startswith("this test cannot judge your answer: KeyError: torch.float8_e5m2")
    assert result.headline.endswith("; tell the staff of your course")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (torch.ones(0, 5), ""),
        (torch.ones(5, 0), "the answer has shape (5, 0), expected (0, 5)"),
        (torch.ones(0, 5).double(), "the answer has dtype float64, expected float32, that of the inputs"),
    ],
)
def test_an_answer_without_numbers_has_a_shape_and_a_dtype(answer: torch.Tensor, said: str) -> None:
    expected = torch.ones(0, 5, dtype=torch.float64)
    inputs, right = {"x": torch.ones(0, 5)}, {"answer": expected, "gradient of x": expected}
    case = Case("empty", "run_odd", inputs, expected, right)
    checks = [case.copy(), case.copy()]
    checks[0].require_gradients()
    for check, given in zip((checks[0].check_gradients, checks[1].check_to_the_last_digit), checks, strict=True):
        result = run(Test("test_x", lambda check=check, given=given: check(answer * given.x.sum()), ("x.py", 1)), ROOT)
        assert result.headline == said
