"""Forbidden functions are found in the source, however they were imported."""

import pytest

from cs336_staff.grading.rules import find_forbidden
from cs336_staff.grading.submission import Submission, take_in

from .conftest import ROOT


def found(**files: str) -> list[tuple[str, int, str]]:
    sources = {f"{path.replace('__', '/')}.py": source.encode() for path, source in files.items()}
    return [(line.file, line.number, line.function) for line in find_forbidden(Submission("x", sources, "adapters"))]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import torch\ntorch.softmax(x, 0)", "torch.softmax"),
        ("import torch as t\nt.nn.functional.softmax(x)", "torch.nn.functional.softmax"),
        ("import torch.nn.functional as F\nf = F.softmax", "torch.nn.functional.softmax"),
        ("from torch.nn import functional\nfunctional.softmax(x)", "torch.nn.functional.softmax"),
        ("from torch.nn.functional import softmax as s\ns(x)", "torch.nn.functional.softmax"),
        ("from torch.nn.functional import *\nsoftmax(x)", "torch.nn.functional.softmax"),
        ("from torch import nn\nnn.Linear(2, 3)", "torch.nn.Linear"),
        ("from torch import nn\nclass A(nn.MultiheadAttention): ...", "torch.nn.MultiheadAttention"),
        ("import torch\ngetattr(torch, 'softmax')(x)", "torch.softmax"),
        ("y = x\ny.softmax(-1)", "torch.Tensor.softmax"),
        ("y = x\n(y @ y).softmax(-1)", "torch.Tensor.softmax"),
    ],
)
def test_uses_are_found(source: str, name: str) -> None:
    assert found(adapters=source) == [("adapters.py", 2, name)]


@pytest.mark.parametrize(
    "source",
    [
        "from cs336_basics.nn import functional\nfunctional.softmax(x)",
        "from torch.nn.functional import softmax",
        "from torch.nn.functional import softmax\ndef softmax(x): ...\nsoftmax(x)",
        "class A:\n  def f(self): return self.softmax(1)",
        "import torch\ntorch.nn.Parameter(x)",
        "x = = 1",
        "'\\d'",
    ],
)
def test_nothing_is_found_where_nothing_is(source: str) -> None:
    assert found(adapters=source) == []


def test_only_files_that_the_adapters_reach_count() -> None:
    bad = "import torch\ntorch.softmax(x, 0)"
    assert found(adapters="import model", model="from a.b import c", a__b="", train=bad) == []
    assert found(adapters="import model", model="from a import b", a__b=bad) == [("a/b.py", 2, "torch.softmax")]
    assert found(adapters="from a import b", a__b="from . import c", a__c=bad) == [("a/c.py", 2, "torch.softmax")]


def test_the_solution_has_none() -> None:
    assert find_forbidden(take_in(ROOT)) == []


def test_very_deep_source_is_survived() -> None:
    assert found(adapters="x" + ".a" * 100_000) == []
    assert found(adapters="(" * 10_000) == []
