"""Functions that have the body of a reference are listed for staff, and honest code has none."""

from pathlib import Path
from textwrap import indent

from staff.tests import ROOT
from staff.tests.grading.shadow_class import CLASS, write_tree
from whichline_grader.grading.copies import find_copies
from whichline_grader.grading.findings import find_means_to_hide
from whichline_grader.grading.graded import Notes
from whichline_grader.sandbox.submission import MAX_PARSED_BYTES, Submission, take_in

SOFTMAX, *_ = (ROOT / "problems/softmax/reference.py").read_text(encoding="utf-8").partition("\n\n\n# 3 ")
RENAMED = SOFTMAX.replace("largest", "m").replace("run_softmax(in_features: Tensor, dim: int)", "mine(x0, axis)")
RENAMED = RENAMED.replace("x = in_features", "x = x0").replace("(dim", "(axis")


def find(source: str) -> tuple[str, ...]:
    return find_copies(Submission("test", {"nn.py": source.encode()}, "adapters"))


def test_a_body_is_found_whatever_the_names_are() -> None:
    line = SOFTMAX[: SOFTMAX.index("def run")].count("\n") + 1
    assert find(SOFTMAX) == (f"nn.py:{line} `run_softmax` is run_softmax of softmax",)
    assert find(RENAMED) == (f"nn.py:{line} `mine` is run_softmax of softmax",)
    assert find(RENAMED.replace("e / positive", "e / total")) == ()


def test_a_method_is_found_and_a_docstring_does_not_hide_it() -> None:
    body = SOFTMAX[SOFTMAX.index("    x = in_features") :]
    method = f'class A:\n    def f(in_features, dim):\n        """Mine."""\n{indent(body, "    ")}'
    assert find(method) == ("nn.py:2 `f` is run_softmax of softmax",)


def test_what_cannot_be_read_has_none() -> None:
    assert find("def f(:") == find(SOFTMAX + "#" * MAX_PARSED_BYTES) == find(f"{SOFTMAX}\na{90_000 * '.b'}") == ()


def test_honest_code_has_none_and_no_means_to_hide_what_it_calls(tmp_path: Path) -> None:
    programs = [*ROOT.glob("staff/right_programs/*.py")]
    assert find_copies(Submission("test", {each.name: each.read_bytes() for each in programs}, "adapters")) == ()
    assert find_copies(take_in(ROOT)) == ()
    for path in (*programs, ROOT / "adapters.py", *ROOT.glob("cs336_basics/nn/*.py")):
        assert not find_means_to_hide(Submission("test", {path.name: path.read_bytes() + b"#"}, "adapters"))
    for student in CLASS:
        tree = take_in(write_tree(student, tmp_path))
        assert find_copies(tree) == find_means_to_hide(tree) == ()


def test_staff_are_told() -> None:
    assert Notes(copied=("nn.py:2 `f` is run_softmax of softmax",)).doubts == [
        "has the body of a reference: nn.py:2 `f` is run_softmax of softmax"
    ]
