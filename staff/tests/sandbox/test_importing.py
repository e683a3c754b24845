"""What cannot be imported costs the problems that need it, and these say what went wrong."""

import sys

import pytest
import torch

from whichline.engine.errors import StudentRaised

from .conftest import Run

LAYERS = ("bubblewrap",)
GRADER = f"(the grader runs Python {sys.version.split()[0]})"
X = torch.zeros(2)
GOOD = "def run_softmax(x, dim):\n    return x + 1\n"
# `run_rope` uses `lost`, in whichever way; `run_softmax` does not.
USES = GOOD + "def run_rope(d_k, theta, max_seq_len, x, positions):\n    return {}\n"
MISSING = """
import torch, typing
from jaxtyping import Array, Float
from torch.utils.tensorboard import SummaryWriter
from wandb import Run, decorated
from hub import Mixin
import matplotlib.pyplot as plt
plt.rcParams["figure.dpi"] = 100
try:
    import matplotlib.figure
except ImportError:
    matplotlib = None
try:
    import flash_attn
except ImportError:
    flash_attn = None
@decorated(level=3)
def train(run: Run | None, log: "str" | Run, other: typing.Optional[Run]) -> Float[Array, "a b"]: ...
class Model(torch.nn.Module, Mixin, name="mine"):
    def forward(self, x):
        return x
writer = SummaryWriter() if plt.isinteractive() else None
lost = writer.add_scalar
def run_linear(d_in, d_out, weights, in_features):
    return in_features if matplotlib is flash_attn is None else Model()(in_features)
"""


def failure(run: Run, files: dict[str, str], use: str = "lost(x)") -> StudentRaised:
    """What `run_rope` raises where the import of `lost` at the top of the adapters fails; `run_softmax` works."""
    adapters = run({**files, "adapters.py": files["adapters.py"] + USES.format(use)})
    assert adapters.run_softmax(X, 0).tolist() == [1, 1]
    with pytest.raises(StudentRaised) as caught:
        adapters.run_rope(2, 1.0, 2, X, X)
    return caught.value


BROKEN = {
    "x = 1\ny = = 2\n": f"SyntaxError: invalid syntax {GRADER}",
    "1 / 0\n": "ZeroDivisionError: division by zero",
    "open('/submission/data.txt')\n": "FileNotFoundError: [Errno 2] No such file or directory: '/submission/data.txt'",
    "import sys\nsys.exit('usage')\n": "SystemExit: usage",
    "class lots: pass\n": "ImportError: cannot import name 'lost' from 'mine.broken' (/submission/mine/broken.py)",
}


@pytest.mark.parametrize("source", BROKEN)
@pytest.mark.parametrize("use", ["lost(x)", "x * lost", "torch.stack([x, lost.SIZE])", "lost.table['a']", "x[:lost]"])
def test_a_broken_file_costs_what_needs_it(run: Run, source: str, use: str) -> None:
    files = {"adapters.py": "import torch\nfrom mine.broken import lost\n", "mine/broken.py": source}
    assert str(failure(run, files, use)) == BROKEN[source]


def test_a_file_that_is_no_utf_8_text_is_named(run: Run) -> None:
    raised = failure(run, {"adapters.py": "from mine.broken import lost\n", "mine/broken.py": "x = 1\0\n"})
    assert raised.message == f"source code string cannot contain null bytes {GRADER}"
    assert (raised.frames[-1].filename, raised.frames[-1].lineno) == ("mine/broken.py", 1)


def test_a_file_gets_no_arguments_and_may_end_as_at_home(run: Run) -> None:
    source = "import argparse\nassert argparse.ArgumentParser().parse_args()\nlost = quit\n"
    raised = failure(run, {"adapters.py": "from mine import lost\n", "mine.py": source}, "lost()")
    assert (raised.type, raised.message) == ("SystemExit", "None")


def test_what_is_lost_names_its_use_its_import_and_its_place(run: Run) -> None:
    files = {"adapters.py": "from mine.broken import lost\n", "mine/broken.py": "x = 1\ny = 1 / 0\n"}
    lines = [(frame.filename, frame.lineno) for frame in failure(run, files).frames]
    assert lines == [("adapters.py", 5), ("adapters.py", 1), ("mine/broken.py", 2)]


NAMED = ["from mine import rope\nlost = rope.lost", "import mine.rope\nlost = mine.rope.lost"]
NAMED += ["import mine.rope as r\nlost = r.lost"]


@pytest.mark.parametrize("statement", [*NAMED, "from mine.rope import *", "from mine.rope import lost"])
def test_a_file_that_imports_a_broken_one(run: Run, statement: str) -> None:
    rope = "from .broken import helper\ndef lost(x):\n    return helper(x)\n"
    files = {"mine/__init__.py": "", "mine/rope.py": rope, "mine/broken.py": "x = 1\ndef helper(:\n"}
    raised = failure(run, {**files, "adapters.py": f"{statement}\n"})
    assert raised.type == "SyntaxError"
    places = [(frame.filename, frame.lineno) for frame in raised.frames]
    assert places[-2:] == [("mine/rope.py", 1), ("mine/broken.py", 2)]


def test_a_module_that_is_broken_leaves_its_package_in_place(run: Run) -> None:
    adapters = "import mine.broken, mine.good\nlost = mine.broken.lost\nassert mine.good.x == 1\n"
    files = {"adapters.py": adapters, "mine/broken.py": "1 / 0\n", "mine/good.py": "x = 1\n"}
    assert failure(run, files).type == "ZeroDivisionError"


def test_what_is_lost_is_no_class_to_inherit_from(run: Run) -> None:
    adapters = "import torch\nfrom broken import Base\nclass lost(torch.nn.Module, Base):\n    pass\n"
    assert failure(run, {"adapters.py": adapters, "broken.py": "1 / 0\n"}).type == "ZeroDivisionError"


@pytest.mark.parametrize(
    "around",
    [
        "try:\n    from middle import lost\nexcept ZeroDivisionError:\n    lost = None\n",
        "lost = None\nwith suppress(ZeroDivisionError):\n    from middle import lost\n",
    ],
)
def test_an_import_that_may_fail_fails(run: Run, around: str) -> None:
    source = f"from contextlib import suppress\n{around}{USES.format('lost is None')}"
    assert run({"adapters.py": source, "middle.py": "lost = 1 / 0\n"}).run_rope(2, 1.0, 2, X, X) is True


def test_two_files_that_import_each_other(run: Run) -> None:
    imports = "from a import lost\n"
    files = {"adapters.py": imports, "a.py": "from b import f\nlost = f\n", "b.py": f"{imports}f = lost\n"}
    assert str(failure(run, files)).startswith("ImportError: cannot import name 'lost' from partially")


LACKS = "ModuleNotFoundError: No module named '{0}': there is no {0}.py in what you handed in (is it in your package?)"
NOT_FOUND = "ModuleNotFoundError: No module named '{}': there is no {}.py in what you handed in; is {}.py meant?"
LOST = {
    "from model import lost": LACKS.format("model"),
    "from functional import lost": NOT_FOUND.format("functional", "functional", "mine/nn/functional"),
    "from mine.functional import lost": NOT_FOUND.format("mine.functional", "mine/functional", "mine/nn/functional"),
    "from mine.nn import fonctional as lost": "ImportError: cannot import name 'fonctional' from 'mine.nn' ",
    "from torch._six import lost": "ModuleNotFoundError: No module named 'torch._six'",
    "from torch.nn import lost": "ImportError: cannot import name 'lost' from 'torch.nn' ",
    "from transformers import lost": LACKS.format("transformers"),
}


@pytest.mark.parametrize("statement", LOST)
def test_what_is_not_there_is_named(run: Run, statement: str) -> None:
    files = {"mine/nn/functional.py": "def lost(x): ...\n"}
    assert str(failure(run, {**files, "adapters.py": f"{statement}\n"})).startswith(LOST[statement])
    adapters = run({**files, "adapters.py": f"def run_softmax(x, dim):\n    {statement}\n    return lost(x)\n"})
    with pytest.raises(StudentRaised) as caught:
        adapters.run_softmax(X, 0)
    assert str(caught.value).startswith(LOST[statement])


def test_missing_packages_cost_nothing_where_they_are_not_used(run: Run) -> None:
    assert str(failure(run, {"adapters.py": MISSING})).startswith(LACKS.format("tensorboard"))
    adapters = run(MISSING)
    assert adapters.run_linear(2, 2, X, X).tolist() == [0, 0]
    assert adapters.respondent.missing == {"hub", "jax", "matplotlib", "tensorboard", "wandb"}


def test_a_decorator_that_is_missing_leaves_a_function_as_it_is(run: Run) -> None:
    decorators = "from typeguard import typechecked\nimport nvtx\n@nvtx.annotate('softmax')\n@typechecked\n"
    assert run(decorators + GOOD).run_softmax(X, 0).tolist() == [1, 1]


def test_names_of_typing_that_are_newer(run: Run) -> None:
    assert run("from typing import TypeIs, override\n@override\n" + GOOD).run_softmax(X, 0).tolist() == [1, 1]


@pytest.mark.parametrize("guard", ["{}", "try:\n    {}\nexcept ImportError:\n    __version__ = '0'"])
def test_the_version_of_what_is_not_installed(run: Run, guard: str) -> None:
    version = guard.format("__version__ = importlib.metadata.version('dumas-homework')")
    requires = "__requires__ = importlib.metadata.requires('dumas-homework')"
    files = {"mine/__init__.py": f"import importlib.metadata\n{version}\n{requires}\n", "mine/nn.py": GOOD}
    assert run({**files, "adapters.py": "from mine.nn import run_softmax\n"}).run_softmax(X, 0).tolist() == [1, 1]


def test_a_try_around_a_file_does_not_expect_what_the_file_needs(run: Run) -> None:
    adapters = "try:\n    from mine import run_softmax\nexcept ImportError:\n    from other import run_softmax\n"
    files = {"adapters.py": adapters, "mine.py": f"import matplotlib.pyplot as plt\n{GOOD}"}
    assert run(files).run_softmax(X, 0).tolist() == [1, 1]
