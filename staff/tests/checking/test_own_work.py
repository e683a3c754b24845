"""Students read what of their code is not their own work, and what it costs, while their tests pass."""

import re

import pytest

from staff.tools.student import FUNCTIONAL, Student

pytestmark = pytest.mark.slow
WRONG = """
import torch

def softmax(x, dim):
    e = torch.exp(x - x.amax(dim, keepdim=True))
    return e / e.sum(-1, keepdim=True)
"""


def use_torch(student: Student) -> None:
    """Take softmax from torch, in its own function alone, and a linear layer in multi-head attention."""
    student.replace(FUNCTIONAL, "(exponentials / total).to(x.dtype)", "torch.softmax(x, dim).nan_to_num(0.0)")
    by_torch = "return nn.functional.linear(weight=self.output_proj.weight, input="
    student.replace("cs336_basics/nn/attention.py", "return self.output_proj(", by_torch)


def test_check_and_submit_say_which_problem_pays_for_which_line(student: Student) -> None:
    use_torch(student)
    process = student.run("whichline", "submit")
    assert process.returncode == 0, process.stderr
    said = process.stdout.partition("Write this yourself")[2].splitlines()
    assert [line.strip() for line in said if "count" in line] == [
        "softmax: 2 of 2 points will not count. In its tests you use",
        "multihead_self_attention: 1 of 5 points will not count. In its tests you use",
    ]
    assert "torch.nn.functional.linear in cs336_basics/nn/attention.py:" in process.stdout
    assert "instead" not in process.stdout
    for row in ("softmax 17/17 0.0/2", "linear 5/5 1.0/1", "multihead_self_attention 23/23 4.0/5"):
        assert re.search(rf"^{row.replace(' ', ' +(?:passed +)?')}$", process.stdout, re.MULTILINE)
    assert (student.folder / "submission.zip").exists()


def test_a_run_of_some_problems_does_not_claim_to_know_the_price(student: Student) -> None:
    use_torch(student)
    process = student.run("whichline", "check", "softmax", "multihead_self_attention")
    assert process.returncode == 1  # not every point will count
    assert "another one may lose these points; uv run cs336 check runs them all" in " ".join(process.stdout.split())


def test_pytest_says_it_below_the_failures(student: Student) -> None:
    use_torch(student)
    process = student.run("pytest", "-q", "-k", "test_softmax")
    assert process.returncode == 0
    said = process.stdout.partition("Write this yourself")[2]
    assert "softmax: 2 of 2 points will not count. In its tests you use\n  torch.softmax in cs336_basics/nn" in said
    assert "instead" not in said
    assert "17 passed" in said


def test_a_comparison_with_torch_beside_the_code_costs_nothing(student: Student) -> None:
    """The adapters import the file in the call of a test."""
    function = "\ndef attention_scores("
    student.replace(FUNCTIONAL, function, f"\ntorch.softmax(torch.ones(3), 0)\n\n{function}")
    for command in (("pytest", "-q", "-k", "test_softmax"), ("whichline", "check", "softmax")):
        process = student.run(*command)
        assert (process.returncode, "Write this yourself" in process.stdout) == (0, False)


@pytest.mark.parametrize(
    ("command", "home"),
    [(("whichline", "check", "softmax"), "model.py"), (("pytest", "-k", "test_softmax"), "mine/ops/model.py")],
    ids=str,
)
def test_code_outside_of_the_package_is_the_students_too(student: Student, command: tuple[str, ...], home: str) -> None:
    (student.folder / home).parent.mkdir(parents=True, exist_ok=True)
    module = home.removesuffix(".py").replace("/", ".")
    student.replace("adapters.py", "from cs336_basics.nn.functional import softmax", f"from {module} import softmax")
    (student.folder / home).write_text(WRONG)
    said = student.run(*command).stdout
    assert f"{home}:6" in said
    assert "e.sum(-1, keepdim=True)" in said
    (student.folder / home).write_text("import torch\n\ndef softmax(x, dim):\n    return torch.softmax(x, dim)\n")
    assert f"torch.softmax in {home}:4: return torch.softmax(x, dim)" in " ".join(student.run(*command).stdout.split())
