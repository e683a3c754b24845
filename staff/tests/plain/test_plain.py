"""A plain pytest suite with a reference: what its user reads."""

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as Xml
from pathlib import Path

import pytest

import whichline
from staff.tests import ROOT
from staff.tools.forked import run_forked
from whichline.plain import TableError

TABLE = '[tool.whichline]\ncode = ["code_"]\nreference = "solution"\n'
CODE = """
import numpy as np

def scale(x, weights):
    centered = x - x.mean()
    return weights["gain"] * centered / x.var()

def center(x):
    x -= x.max()

def rows(x):
    total = x.sum(0)
    return x / total[:, None]

def plain(x):
    return x + 1

def name(x):
    return "wrong"

def alone(x):
    return 2 * x

def distances(x, y):
    return np.array([[abs(one - other) for other in y] for one in x])

def share_out(x):
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)

def mix(x, y):
    scores = x @ y.T
    scores = scores / len(y)
    weights = share_out(scores)
    return weights @ y

def total(x, y):
    result = 0.0
    near = distances(x, y)
    for row in near:
        result += row.max() ** 2
    return result

def wide(x):
    spread = [np.std(column) for column in x.T]
    return np.array(spread)

def share(x):
    least = x.min(axis=1)
    return (x - least) / 2

def rotate(x, shift):
    moved = x @ np.ones((3, 3))
    return moved

def drop(state):
    x = state["x"]
    x -= 1
    return x + 1

def signed(x):
    return np.prod(x)

def phase(x):
    return np.exp(1j * len(x))

def running(x):
    out, total = [], 0.0
    for i, value in enumerate(x):
        total += value if i != 1 else 0.0
        out.append(total / 2)
    return np.array(out)

def balance(x, weights):
    return x @ weights.T, (x - x.mean()).sum()

def above(x, y):
    return x >= y

def weigh(x, first, second):
    return x * first + second
"""
ADAPTERS = """
import random

import code_

def run_weigh(x, first, second):
    return code_.weigh(x, first, second).flip(0)

def run_draw(n):
    return random.randrange(n - 1)
"""
SOLUTION = """
import numpy as np
import torch

def share_out(x):
    return np.exp(x) / np.exp(x).sum(1)[:, None]

def mix(x, y):
    powers = np.exp(x @ y.T) ** (1 / x.shape[1])
    return powers / powers.sum(1)[:, None] @ y

def scale(x, weights):
    centered = x - x.mean()
    deviation = x.std()
    return weights["gain"] * centered / deviation

def center(x):
    x -= x.mean()

def rows(x):
    total = x.sum(1)
    return x / total[:, None]

def plain(x):
    return x + 1

def name(x):
    return "right"

def distances(x, y):
    return np.sqrt((x[:, None] - y) ** 2)

def total(x, y):
    return ((x[:, None] - y) ** 2).min(1).sum()

def wide(x):
    return x.std(0, ddof=1)

def share(x):
    return (x - x.min(axis=1, keepdims=True)) / 2

def rotate(x, shift):
    return x @ np.ones((3, 3)) + shift

def drop(state):
    return state["x"] * 1.0

def signed(x):
    first = x[0]
    return first * x[1] * -x[2]

def phase(x):
    return np.exp(1j * (len(x) - 1))

def running(x):
    return np.cumsum(x) / 2

def balance(x, weights):
    return x @ weights, x.sum() - x.size * x.mean()

def above(x, y):
    return y < x

def run_weigh(x, first, second):
    return x * first + second

def run_draw(n):
    return int(torch.randint(n, ()))
"""
TESTS = """
import unittest
from pathlib import Path

import numpy as np
import pytest
import torch

import adapters
import code_ as code

@pytest.fixture
def x():
    return np.arange(6.0).reshape(2, 3) ** 2

class TestScale:
    @pytest.mark.parametrize("gain", [1.0, 3.0])
    def test_scale(self, x, gain):
        assert np.allclose(code.scale(x, {"gain": gain}).std(), gain)

def test_center(x, tmp_path):
    np.save(tmp_path / "x.npy", x)
    loaded = np.load(tmp_path / "x.npy")
    code.center(loaded)
    assert abs(loaded.mean()) < 1e-9

class TestRows(unittest.TestCase):
    def test_rows(self):
        self.assertTrue(np.allclose(code.rows(np.arange(6.0).reshape(2, 3)).sum(1), 1))

def test_in_turn(x):
    mark = Path(__file__).with_name("mark")
    scaled = code.scale(x, {"gain": 1.0})
    if mark.exists():
        mark.unlink()
        raise ValueError
    mark.touch()
    assert scaled.std() == 1

def test_right(x):
    assert code.plain(x).sum() == 0

def test_alone(x):
    assert code.alone(x).sum() == 0

def test_mix(x):
    y = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 2.0], [2.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    assert abs(code.mix(x / 9, y)[0, 0] - 0.92816021) < 1e-6

def test_total(x):
    assert np.isclose(code.total(x[0], x[1]), 170)

def test_wide(x):
    assert np.allclose(code.wide(x).sum(), 45 / np.sqrt(2))

def test_share(x):
    assert code.share(x)[:, 0].sum() == 0

def test_rotate(x):
    assert np.allclose(code.rotate(x, 2.0), x @ np.ones((3, 3)) + 2)

def test_drop(x):
    code.drop({"x": x})
    assert x[0, 0] == 0

def test_signed():
    assert code.signed(np.array([2.0, 1.0, -1.0])) == 2.0

def test_phase(x):
    assert abs(code.phase(x) - np.exp(1j * (len(x) - 1))) < 1e-9

def test_running(x):
    assert code.running(x[0] + 0.5)[-1] == 3.25

def test_balance(x):
    weights = np.array([[1.0, 2.0, 0.5], [0.0, 0.3, 1.0], [2.0, 0.0, 0.1]])
    assert np.allclose(code.balance(x / 7, weights)[0], x / 7 @ weights)

def test_above(x):
    assert code.above(x, np.full((2, 3), 4.0)).sum() == 3

def test_weigh():
    assert adapters.run_weigh(torch.tensor([3.0, 1.0, 2.0]), 5.0, 7.0).tolist() == [22.0, 12.0, 17.0]

def test_draw():
    assert max(adapters.run_draw(3) for _ in range(60)) == 2

async def test_async():
    assert code.plain(1) == 2

def test_name(x, monkeypatch):
    monkeypatch.setattr(code, "alone", None)
    assert code.name(x) == "right"
"""


def run_pytest(folder: Path, *args: str) -> str:
    finished = run_forked(("pytest", "-p", "no:cacheprovider", *args), folder, os.environ)
    return (finished.stdout + finished.stderr).decode()


def read_places(report: Path) -> dict[str, str]:
    """What stands under the title in the report of each failing test, as JUnit has it."""
    cases = Xml.parse(report).getroot().iter("testcase")  # noqa: S314 (ours)
    texts = {case.get("name", ""): "".join(case.itertext()) for case in cases}
    return {name: text.partition("which line ---")[2].partition("\n")[2] for name, text in texts.items()}


def run_suite(folder: Path, table: str, code: str, solution: str, tests: str) -> dict[str, str]:
    """Write a suite, run it, and read what stands under its failing tests."""
    (folder / "pyproject.toml").write_text(f"{table}[tool.pytest.ini_options]\n")
    for name, text in {"code_.py": code, "solution.py": solution, "test_code.py": tests}.items():
        (folder / name).write_text(text)
    run_pytest(folder, "--junitxml=report.xml")
    return read_places(folder / "report.xml")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("suite")
    (folder / "adapters.py").write_text(ADAPTERS)
    return run_suite(folder, TABLE.replace('["code_"]', '["code_", "adapters"]'), CODE, SOLUTION, TESTS)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / "examples/plain", tmp_path / "plain"))


def break_line(folder: Path, right: str, wrong: str) -> None:
    model = folder / "parts/model.py"
    source = model.read_text()
    assert right in source
    model.write_text(source.replace(right, wrong, 1))


@pytest.mark.slow
def test_the_example_passes(example: Path) -> None:
    assert "20 passed" in run_pytest(example)


@pytest.mark.slow
def test_the_report_of_each_failing_test_has_place_difference_and_proof(example: Path) -> None:
    break_line(example, "out[..., ::2] = x1 * c - x2 * s", "out[..., ::2] = x1 * c + x2 * s")
    output = run_pytest(example, "--junitxml=report.xml")
    line = "    out[..., ::2] = x1 * c + x2 * s"
    places = read_places(example / "report.xml")
    failing = ["test_rope", "test_self_attention", "test_block"]
    assert [name for name, text in places.items() if text] == failing
    for name in failing:
        assert places[name].split("\n")[:3] == ["parts/model.py:46, in rope", line, f"{' ' * 20}{'^' * 15}"]
        assert "the failing test passes." in places[name]
        assert places[name].strip() in output


@pytest.mark.slow
def test_diagnose_gives_each_line_once_with_the_tests_that_it_explains(example: Path) -> None:
    break_line(example, "z / torch.sum(z, dim=dim", "z / torch.sum(z, dim=-1")
    (finding,) = whichline.diagnose(["tests/test_model.py", "-k", "softmax"], root=example)
    assert (finding.file, finding.line, finding.function) == ("parts/model.py", 12, "softmax")
    assert finding.tests == ("tests/test_model.py::test_softmax[0]", "tests/test_model.py::test_softmax[1]")
    assert isinstance(finding, whichline.Finding)


def test_diagnose_needs_to_know_the_code_and_the_reference(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"has no table \[tool.whichline\]"):
        whichline.diagnose(root=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("test", "place", "said"),
    [
        # Arrays in dictionaries, a test in a class, with parameters.
        ("test_scale[1.0]", 'weights["gain"] * centered / x.var()', "Expected the reference's `deviation`"),
        ("test_scale[1.0]", 'weights["gain"] * centered / x.var()', "pass"),
        ("test_scale[3.0]", 'weights["gain"] * centered / x.var()', "Expected the reference's `deviation`"),
        ("test_scale[3.0]", 'weights["gain"] * centered / x.var()', "pass"),
        ("test_total", "result += row.max() ** 2", "the failing test passes."),
        ("test_wide", "spread = [np.std(column) for column in x.T]", "With the answer here, the failing test passes."),
        ("test_share", "least = x.min(axis=1)", "of shape (2, 1); found the same numbers in shape (2,)."),
        ("test_rotate", "moved = x @ np.ones((3, 3))", "With the answer here, the failing test passes."),
        ("test_signed", "return np.prod(x)", "Expected the answer, 2; found −2."),
        ("test_phase", "return np.exp(1j * len(x))", "With one more or one less here, the failing test passes."),
        ("test_above", "return x >= y", "found True in 1 place where False belongs."),
        # Its second number is a mere error of rounding, and differs from the reference's.
        ("test_balance", "return x @ weights.T, (x - x.mean()).sum()", "the failing test passes."),
        ("test_name", 'return "wrong"', "Call 1 of code_.name gives 'wrong', and the reference 'right'."),
        # An argument that is changed in place, and a line that raises in a unittest.
        ("test_center", "x -= x.max()", "code_.py:9, in center"),
        ("test_rows", "total = x.sum(0)", "the failing test passes"),
        ("test_drop", "x -= 1", "changes state['x'], which the reference leaves as it is."),
        # A change of the code, since no value shows the line.
        ("test_running", "total += value if i != 1 else 0.0", "With another number here, the failing test passes."),
        # A line of an adapter, since no change behind it helps.
        ("test_weigh", "return code_.weigh(x, first, second).flip(0)", "adapters.py:7, in run_weigh"),
        ("test_weigh", "weigh(x, first, second).flip(0)", "With a part of this left out, the failing test passes."),
    ],
)
def test_the_line_of_code_in_another_style(places: dict[str, str], test: str, place: str, said: str) -> None:
    assert place in places[test].split("\n")[1]
    assert said in places[test]


@pytest.mark.slow
def test_what_a_right_call_makes_of_wrong_arguments_is_not_trusted(places: dict[str, str]) -> None:
    assert "scores = scores / len(y)" in places["test_mix"]
    assert "return weights @ y" not in places["test_mix"]


@pytest.mark.slow
def test_calls_that_draw_from_other_random_numbers_are_not_compared(places: dict[str, str]) -> None:
    assert "does not return what" not in places["test_draw"]
    assert places["test_draw"].startswith("adapters.py:10, in run_draw")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("test", "line"),
    [
        ("test_async", "Async tests are not explained."),
        ("test_in_turn", "This test fails differently each time, so nothing can be proved with it."),
        ("test_right", "All calls of this test return what the reference returns, but for rounding: code_.plain (1)."),
        ("test_alone", "This test calls no function that has a reference of the same name."),
    ],
)
def test_what_does_not_fit_is_said_in_a_line(places: dict[str, str], test: str, line: str) -> None:
    assert places[test].strip().startswith(line)


@pytest.mark.slow
def test_a_search_that_ends_early_says_so(example: Path) -> None:
    break_line(example, "z / torch.sum(z, dim=dim", "z / torch.sum(z, dim=-1")
    (example / "conftest.py").write_text("from whichline.plain import diagnosis\n\ndiagnosis.MOST_SECONDS = 0\n")
    output = run_pytest(example, "-k", "softmax")
    assert "The search stopped after 60 seconds of processor time, before it had tried everything." in output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "reference", "said"),
    [("code_", "solutoin", "reference solutoin cannot be found"), ("cod", "solution", "tests import nothing of cod")],
)
def test_a_name_that_is_not_there_is_told(tmp_path: Path, code: str, reference: str, said: str) -> None:
    table = TABLE.replace("code_", code).replace("solution", reference)
    right = "def double(x):\n    return 2 * x\n"
    test = "import code_\n\n\ndef test_it():\n    assert code_.double(1) == 2\n"
    assert said in run_suite(tmp_path, table, right.replace("2 * ", ""), right, test)["test_it"]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[tool.whichline]\ncode = []", "needs code = "),
        ('[tool.whichline]\ncode = ["a"]', "needs reference = "),
        ('[tool.whichline]\ncodes = ["a"]', "has no key codes"),
    ],
)
def test_a_table_that_cannot_be_used_ends_pytest_with_a_line(tmp_path: Path, table: str, said: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"{table}\n[tool.pytest.ini_options]\n")
    output = run_pytest(tmp_path).strip()
    assert output.startswith("ERROR: pyproject.toml: [tool.whichline]")
    assert said in output
    assert len(output.splitlines()) == 1


@pytest.mark.parametrize("others", [{}, {"assignment.toml": "", "pyproject.toml": TABLE}], ids=["no table", "a course"])
def test_it_does_nothing_without_the_table_or_in_a_course(tmp_path: Path, others: dict[str, str]) -> None:
    for name, text in {"pyproject.toml": "", **others}.items():
        (tmp_path / name).write_text(f"{text}\n[tool.pytest.ini_options]\n")
    (tmp_path / "test_it.py").write_text("import sys\n\n\ndef test_it():\n    assert 'torch' in sys.modules\n")
    output = subprocess.run([sys.executable, "-m", "pytest"], cwd=tmp_path, capture_output=True, text=True).stdout
    assert "1 failed" in output
    assert "which line" not in output
