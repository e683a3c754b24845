"""What a save can change is run again, and nothing that it cannot reach is."""

from pathlib import Path

import pytest

from staff.tests.files import write_files
from whichline.checking.affected_tests import take_fingerprints
from whichline.checking.saves import Saves
from whichline.engine.assignment import Problem

FILES = {
    "tests/test_all.py": (
        "import adapters\ndef test_one(case): adapters.run_one(1)\ndef test_two(): adapters.run_two(2)\n"
    ),
    "adapters.py": (
        "import torch\nfrom cs336_basics.nn import one as uno\ndef run_one(x): return uno(x)\n"
        "def run_two(x):\n    from cs336_basics import nn\n    return nn.Two()(x)\n"
    ),
    "cs336_basics/nn.py": (
        "FACTOR = 2\ndef deep(x): return x\ndef one(x): return deep(x)\n"
        "class Two:\n    def __call__(self, x): return self.helper(x)\n    def helper(self, x): return FACTOR * x\n"
        "def nobody(x: int = 3):\n    deep = x\n    return x\n"
    ),
}
NN, ADAPTERS, TESTS = "cs336_basics/nn.py", "adapters.py", "tests/test_all.py"
PROBLEMS = [Problem(id, id, 1.0, (), {f"test_{id}": 1.0}, ()) for id in ("one", "two")]


@pytest.mark.parametrize(
    ("file", "old", "new", "changed"),
    [
        (NN, "def deep(x): return x", "def deep(x): return -x", {"one"}),
        (NN, "return FACTOR * x", "return FACTOR + x", {"two"}),
        (NN, "    deep = x", "    deep = 2 * x", set()),
        (NN, "def deep(x): return x", "# a comment\n\ndef deep(x):\n    return x", set()),
        (ADAPTERS, "return uno(x)", "return uno(x + 1)", {"one"}),
        (TESTS, "run_two(2)", "run_two(3)", {"two"}),
        (NN, "FACTOR = 2", "FACTOR = 3", {"one", "two"}),  # what runs on import may do anything
        (NN, "x: int = 3", "x: int = print()", {"one", "two"}),
        (ADAPTERS, "import torch\n", "import nothing\n", {"one", "two"}),
        (NN, "class Two:", "class Two(list):", {"one", "two"}),
    ],
)
def test_what_reaches_a_change(file: str, old: str, new: str, changed: set[str], tmp_path: Path) -> None:
    write_files(tmp_path, FILES)
    before = take_fingerprints(tmp_path, PROBLEMS)
    assert old in FILES[file]
    write_files(tmp_path, {file: FILES[file].replace(old, new)})
    after = take_fingerprints(tmp_path, PROBLEMS)
    assert {id for id in before if before[id] != after[id]} == changed
    write_files(tmp_path, {file: FILES[file]})
    assert take_fingerprints(tmp_path, PROBLEMS) == before


def test_of_what_is_no_python_nothing_is_known(tmp_path: Path) -> None:
    write_files(tmp_path, FILES | {NN: "def deep(:"})
    assert take_fingerprints(tmp_path, PROBLEMS) == {}


@pytest.mark.parametrize("home", ["model.py", "mine/nn/model.py", "src/model.py"])
def test_a_change_outside_of_the_package_is_one(home: str, tmp_path: Path) -> None:
    adapters = "from model import one as uno\ndef run_one(x): return uno(x)\ndef run_two(x): return x\n"
    write_files(tmp_path, FILES | {ADAPTERS: adapters, home: FILES[NN]})
    before = take_fingerprints(tmp_path, PROBLEMS)
    saves = Saves(tmp_path)
    (tmp_path / home).write_text(FILES[NN].replace("return deep(x)", "return -deep(x)"))
    after = take_fingerprints(tmp_path, PROBLEMS)
    assert [id for id in before if before[id] != after[id]] == ["one"]
    assert saves.look() == {Path(home)}
