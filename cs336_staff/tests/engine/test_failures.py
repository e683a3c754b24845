"""What a student reads when a test fails: their mistake and their lines, and no frame of anyone else."""

import re

import pytest

from cs336_staff.tools.student import Student

pytestmark = pytest.mark.slow

FUNCTIONAL = "cs336_basics/nn/functional.py"


def failures(student: Student, *arguments: str) -> str:
    process = student.run("pytest", "-q", *arguments)
    assert process.returncode == 1, process.stdout + process.stderr
    return " ".join(process.stdout.split())  # as it reads, wherever its lines were wrapped


def test_what_is_not_written_is_reported_as_such_and_nothing_else(student: Student) -> None:
    student.unwrite(FUNCTIONAL)
    output = failures(student, "-k", "softmax or scaled_dot_product_attention")
    for function in ("softmax", "scaled_dot_product_attention"):
        assert f"not implemented yet: write {function} in {FUNCTIONAL}" in output
    assert "Error" not in output
    assert " passed" not in output


def test_an_unwritten_adapter_and_an_unwritten_method(student: Student) -> None:
    student.unwrite("adapters.py")
    assert "not implemented yet: write run_softmax in adapters.py" in failures(student, "-k", "test_softmax and 1d")


def test_an_unwritten_method_has_its_class(student: Student) -> None:
    student.unwrite("cs336_basics/nn/linear.py")
    output = failures(student, "-k", "test_linear and vector")
    assert "not implemented yet: write Linear.__init__ in cs336_basics/nn/linear.py" in output


def test_a_wrong_answer(student: Student) -> None:
    student.replace(FUNCTIONAL, "math.sqrt(Q.shape[-1])", "Q.shape[-1]")
    output = failures(student, "-k", "test_scaled_dot_product_attention and 3d-more-keys")
    assert "the answer is wrong in 197 of 200 places furthest off at" in output
    assert (
        "the case is attention/3d-more-keys: Q (2, 5, 16) float32 K (2, 7, 16) float32 V (2, 7, 20) float32 "
        "mask (5, 7) bool expected (2, 5, 20) float32"
    ) in output


def test_an_exception_shows_the_students_lines_alone(student: Student) -> None:
    student.replace(FUNCTIONAL, "... queries d_k, ... keys d_k ->", "... queries d_k, ... d_k keys ->")
    output = failures(student, "-k", "test_scaled_dot_product_attention and 3d-more-keys")
    places = re.findall(r"\S+\.py:\d+, in (\S+)", output)
    functions = ["scaled_dot_product_attention", "attention_weights", "attention_scores"]
    assert places == ["run_scaled_dot_product_attention", *functions]
    assert output.count('einsum(queries, keys, "... queries d_k, ... d_k keys -> ... queries keys")') == 1
    assert "site-packages" not in output
    assert "cs336_kit" not in output


def test_a_detached_answer(student: Student) -> None:
    student.replace(FUNCTIONAL, "logits = at_least_float32(x)", "logits = at_least_float32(x).detach()")
    output = failures(student, "-k", "test_softmax_gradients and last-dim")
    assert "the answer is cut off from its inputs, so nothing can be learned through it: look for .detach()" in output


def test_an_input_changed_in_place(student: Student) -> None:
    student.replace(FUNCTIONAL, "maximum = logits.detach()", "logits += 1\n    maximum = logits.detach()")
    output = failures(student, "-k", "test_softmax_leaves_its_input_alone")
    assert "in_features was changed: look for an operation in place, such as x /= ..." in output


def test_a_wrong_type_is_named(student: Student) -> None:
    student.replace("adapters.py", "return softmax(in_features, dim)", "return softmax(in_features, str(dim))")
    output = failures(student, "-k", "test_softmax and 1d")
    assert "softmax got '0' for dim expected int adapters.py:" in output


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("def broken(:", "SyntaxError: invalid syntax"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_adapters_that_cannot_be_imported(student: Student, line: str, message: str) -> None:
    student.replace("adapters.py", "import torch\n", f"import torch\n{line}\n")
    process = student.run("pytest", "-q")
    assert process.returncode == 2
    assert f"\n{message}\n" in process.stdout
    assert "adapters.py" in process.stdout
    assert line in process.stdout
    assert "importlib" not in process.stdout


def test_a_missing_case_file(student: Student) -> None:
    (student.folder / "fixtures/softmax/1d.safetensors").write_bytes(b"half")
    output = failures(student, "-k", "test_softmax and 1d")
    assert "1d.safetensors cannot be read" in output
    assert "take it again from the handout" in output
