"""Forbidden functions are found in the source, however they were imported."""

import time

import pytest

from cs336_staff.grading.rules import MAX_BYTES, Source, shown
from cs336_staff.sandbox.replies import Line
from cs336_staff.sandbox.submission import Submission, take_in

from .conftest import ROOT


def read(**files: str) -> Source:
    """A file for each keyword; `__` in it stands for a slash."""
    sources = {f"{path.replace('__', '/')}.py": source.encode() for path, source in files.items()}
    return Source(Submission("x", sources, "adapters"))


def found(**files: str) -> list[tuple[str, int, str]]:
    return [(line.file, line.number, line.function) for line in read(**files).forbidden()]


def reached(**files: str) -> list[tuple[str, int]]:
    """What `run_x` of the adapters reaches."""
    return [(line.file, line.number) for line in read(**files).reached(["run_x"])]


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


BAD = "import torch.nn.functional as F\n"
USE = "    return F.softmax(x, 0)\n"


@pytest.mark.parametrize(
    "files",
    [
        {"adapters": f"{BAD}def run_x(x):\n{USE}"},
        {"adapters": f"{BAD}def run_x(x): return help(x)\ndef help(x):\n{USE}"},
        {"adapters": f"{BAD}run_x = lambda x: x\nif True:\n    run_x = F.softmax"},
        {"adapters": "import m\ndef run_x(x): return m.f(x)", "m": f"{BAD}def f(x):\n{USE}"},
        {"adapters": "def run_x(x):\n    import a.m\n    return a.m.f(x)", "a__m": f"{BAD}def f(x):\n{USE}"},
        {"adapters": "from a import f as g\ndef run_x(x): return g(x)", "a": f"{BAD}def f(x):\n{USE}"},
        {"adapters": "from a.b import *\ndef run_x(x): return f(x)", "a__b": f"{BAD}def f(x):\n{USE}"},
        {
            "adapters": "from a.b import M\ndef run_x(x): return M()(x)",
            "a__b": "from .m import Base\nclass M(Base): pass",
            "a__m": f"{BAD}class Base:\n  def forward(self, x):\n{USE}",
        },
        {"adapters": "from a import s\ndef run_x(x): return s(x)", "a": f"{BAD}s = F.softmax"},
    ],
    ids=lambda files: " ".join(files),
)
def test_what_a_graded_function_reaches_by_name_counts(files: dict[str, str]) -> None:
    assert reached(**files)


@pytest.mark.parametrize(
    "files",
    [
        {"adapters": f"{BAD}def run_x(x): return x\ndef run_y(x):\n{USE}"},
        {"adapters": "import train\ndef run_x(x): return x", "train": f"{BAD}def loss(x):\n{USE}"},
        {"adapters": "from m import f\ndef run_x(x): return f(x)", "m": f"{BAD}def f(x): pass\ndef check(x):\n{USE}"},
    ],
    ids=["another function", "a training script", "a check of one's own"],
)
def test_what_no_graded_function_reaches_does_not_count(files: dict[str, str]) -> None:
    assert not reached(**files)
    assert found(**files)


def test_the_solution_has_none() -> None:
    source = Source(take_in(ROOT))
    assert source.forbidden() == []
    assert source.unread == []


@pytest.mark.parametrize("text", ["x" + ".a" * 100_000, "(" * 10_000, "x = = 1", "#" * MAX_BYTES + "\n"])
def test_a_source_that_cannot_be_read_is_named(text: str) -> None:
    source = read(adapters="import model", model=text)
    assert source.unread == ["model.py"]
    assert source.forbidden() == []


@pytest.mark.slow
@pytest.mark.parametrize("text", ["x" + ".a" * 900 + "\n", "f(a)(b);"])
def test_a_long_source_takes_seconds(text: str) -> None:
    started = time.process_time()
    read(adapters=text * ((MAX_BYTES - 1) // len(text))).forbidden()
    assert time.process_time() - started < 20


BAD_LINE = f"{BAD}def f(x):\n{USE}"
HOSTILE = {
    "one statement, many names": {"adapters": "a=" * 100_000 + "0"},
    "many names for one statement": {
        "adapters": BAD_LINE + "=".join(f"a{i}" for i in range(30_000)) + "=f\ndef run_x(x): return a0(x)"
    },
    "a module of many parts": {
        "adapters": f"{BAD_LINE}import {'a.' * 50_000}b as c\ndef run_x(x): f\n" + "    c\n" * 9_000
    },
    "many stars": {
        "adapters": BAD_LINE
        + "".join(f"from m{i} import *\n" for i in range(900))
        + "def run_x(x):\n    f(x)\n"
        + "".join(f"    n{i}\n" for i in range(15_000)),
        **{f"m{i}": "" for i in range(900)},
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("files", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_source_takes_seconds(files: dict[str, str]) -> None:
    started = time.process_time()
    source = read(**files)
    source.reached(["run_x"])
    source.forbidden()
    assert time.process_time() - started < 20


def test_a_form_feed_ends_no_line() -> None:
    files = {"adapters": f"# \f\f\x1c\u2028\n{BAD}def run_x(x):\n{USE}"}
    (line,) = read(**files).reached(["run_x"])
    assert (line.number, line.source) == (4, "return F.softmax(x, 0)")


def test_a_line_is_shown_once_by_the_name_in_python() -> None:
    lines = [
        Line("m.py", 3, "aten._softmax.default", "y = F.softmax(x)"),
        Line("m.py", 3, "torch.nn.functional.softmax", "y = F.softmax(x)"),
        Line("m.py", 4, "aten._scaled_dot_product_flash_attention_for_cpu.default", "z = sdpa(x)"),
        Line("m.py", 5, "secret 0.123", "what no watch reports"),
    ]
    assert shown(lines) == [
        "torch.nn.functional.softmax in m.py:3: y = F.softmax(x)",
        "aten._scaled_dot_product in m.py:4: z = sdpa(x)",
    ]
    assert len(shown(Line("m.py", n, "torch.softmax", "x") for n in range(99))) == 3
