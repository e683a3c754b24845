"""Staff get a list of means to hide calls and of bodies of references; for honest code it is empty."""

from dataclasses import asdict, replace
from pathlib import Path
from textwrap import indent

import pytest

from staff.tests.grading.shadow_class import CLASS, ROOT, write_tree
from staff.tests.grading.test_gradebook import GRADING
from whichline_grader.grading import findings
from whichline_grader.grading.copies import find_copies
from whichline_grader.grading.feedback import feedback
from whichline_grader.grading.findings import LOOKS, PAST, TOO_DEEP, TOO_LONG, find_means_to_hide
from whichline_grader.grading.graded import Notes, read_notes
from whichline_grader.grading.report import Report
from whichline_grader.sandbox.submission import MAX_PARSED_BYTES, Submission, take_in

WATCH = "packages/whichline/whichline/rules/watch.py"
HARMLESS = """
import gc, importlib.metadata, re, sys, torch
sys.path.append(__file__)
__version__ = importlib.metadata.version("cs336_basics") + torch.__version__
class Module(torch.nn.Module):
    def __init__(self): super().__init__(); self._cache = self.__class__.__name__
    def forward(self, x): return self._cache, getattr(x, "grad"), re.compile(""), self.eval(), sys.version_info
torch.compile(Module())
"""


def found_in(source: str, path: str = "nn.py") -> tuple[str, ...]:
    return find_means_to_hide(Submission("test", {path: source.encode()}, "adapters"))


@pytest.mark.parametrize(
    ("source", "means"),
    [
        ("import inspect\ninspect.stack()", LOOKS),
        ("import sys as s\ns._getframe().f_back", LOOKS),
        ("import sys\nwatch = sys", LOOKS),
        ("try: ...\nexcept E as e: e.__traceback__.tb_frame", LOOKS),
        ("\nf.__globals__['watch']", LOOKS),
        ("\n__builtins__['ev' + 'al']", LOOKS),
        ("\ngetattr(f, '__code__')", LOOKS),
        ("import threading\nthreading.Thread(target=f).start()", findings.BESIDE),
        ("\nfrom concurrent.futures import ThreadPoolExecutor", findings.BESIDE),
        ("import ctypes\nctypes.CDLL(None)", PAST),
        ("import torch\ntorch.ops.aten.softmax(x, 0)", PAST),
        ("import torch.nn.functional as F\nF._softmax(x)", PAST),
        ("\nfrom torch._C import _nn", PAST),
        ("import torch\ngetattr(torch, '_C')", PAST),
        ("x = 1\ngetattr(f, name)", findings.UNNAMED),
    ],
)
def test_each_line_is_found_with_what_it_can_do(source, means):
    assert found_in(source) == (f"nn.py:2 `{source.splitlines()[1]}` {means}",)


def test_harmless_lines_are_none():
    assert not found_in(HARMLESS)


def test_a_file_of_the_course_is_not_read_unless_it_was_changed():
    source = (ROOT / WATCH).read_text()
    assert not found_in(source.replace("\n", "\r\n"), WATCH)
    assert found_in(source + "#", WATCH)


def test_a_list_is_cut_and_counts_the_rest():
    most = findings.MOST_LISTED
    assert found_in("gc\n" * (most + 3))[-2:] == (f"nn.py:{most} `gc` {LOOKS}", "and 3 more")


@pytest.mark.parametrize(("source", "means"), [("+".join("a" * 9_999), TOO_DEEP), ("a;" * MAX_PARSED_BYTES, TOO_LONG)])
def test_a_file_that_cannot_be_read_is_listed(source, means):
    assert found_in(source) == (f"nn.py:1 `{source[:200]}` {means}",)


def test_files_beyond_the_bytes_that_are_read_share_a_line():
    files = {f"{name}.py": b"a;" * MAX_PARSED_BYTES + name.encode() for name in "abcde"}
    said = find_means_to_hide(Submission("test", files | {"0.py": b"gc"}, "adapters"))
    assert said == (f"0.py:1 `gc` {LOOKS}", f"a.py:1 `{'a;' * 100}` {TOO_LONG}", f"4 more files: {TOO_LONG}")


def test_staff_alone_are_told():
    notes = Notes(could_hide=("nn.py:1 `import ctypes` hides",))
    assert read_notes(asdict(notes) | {"of another version": 1}) == notes
    assert "ctypes" not in feedback(Report(replace(GRADING, notes=notes), {}))
    copy = "nn.py:2 `f` is run_softmax of softmax"
    assert Notes(copied=(copy,)).doubts == [f"has the body of a reference: {copy}"]


SOFTMAX, *_ = (ROOT / "problems/softmax/reference.py").read_text(encoding="utf-8").partition("\n\n\n# 3 ")
RENAMED = SOFTMAX.replace("largest", "m").replace("run_softmax(in_features: Tensor, dim: int)", "mine(x0, axis)")
RENAMED = RENAMED.replace("x = in_features", "x = x0").replace("(dim", "(axis")


def copies_in(source: str) -> tuple[str, ...]:
    return find_copies(Submission("test", {"nn.py": source.encode()}, "adapters"))


def test_a_body_is_found_whatever_the_names_are() -> None:
    line = SOFTMAX[: SOFTMAX.index("def run")].count("\n") + 1
    assert copies_in(SOFTMAX) == (f"nn.py:{line} `run_softmax` is run_softmax of softmax",)
    assert copies_in(RENAMED) == (f"nn.py:{line} `mine` is run_softmax of softmax",)
    assert copies_in(RENAMED.replace("e / positive", "e / total")) == ()


def test_a_method_is_found_and_a_docstring_does_not_hide_it() -> None:
    body = SOFTMAX[SOFTMAX.index("    x = in_features") :]
    method = f'class A:\n    def f(in_features, dim):\n        """Mine."""\n{indent(body, "    ")}'
    assert copies_in(method) == ("nn.py:2 `f` is run_softmax of softmax",)


def test_what_cannot_be_read_has_none() -> None:
    for source in ("def f(:", SOFTMAX + "#" * MAX_PARSED_BYTES, f"{SOFTMAX}\na{90_000 * '.b'}"):
        assert copies_in(source) == ()


def test_honest_code_has_none_and_no_means_to_hide_what_it_calls(tmp_path: Path) -> None:
    programs = [*ROOT.glob("staff/right_programs/*.py")]
    assert find_copies(Submission("test", {each.name: each.read_bytes() for each in programs}, "adapters")) == ()
    assert find_copies(take_in(ROOT)) == ()
    for path in (*programs, ROOT / "adapters.py", *ROOT.glob("cs336_basics/nn/*.py")):
        assert not find_means_to_hide(Submission("test", {path.name: path.read_bytes() + b"#"}, "adapters"))
    for student in CLASS:
        tree = take_in(write_tree(student, tmp_path))
        assert find_copies(tree) == find_means_to_hide(tree) == ()
