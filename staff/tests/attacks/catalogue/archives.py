"""What is not a small file: folders, archives, names, and sources too long to be stored."""

import json
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path

from staff.tests import ROOT
from whichline.engine.case import list_case_names, load_case

WRONG = "def run_softmax(in_features, dim):\n    return in_features * 0\n"
CLIMBING = {"../../cs336-attack.py": WRONG}
LARGE = {"model.py": "#" * (32 << 20)}
PASSING = """
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    call.excinfo = None
    return (yield)
"""
EASY = "import pytest\n@pytest.mark.parametrize('case', ['3d-last-dim'])\ndef test_softmax(case): pass\n"
SHADOWED = ("torch", "numpy", "json", "struct", "pytest", "sitecustomize", "usercustomize", "whichline_grader/__init__")

CASES = [load_case(ROOT / "fixtures", name) for name in list_case_names(ROOT / "fixtures", "softmax/*")]
TABLE = {str(case.in_features.tolist()): case.expected["answer"].tolist() for case in CASES}
IN_ORDER = [case.expected["answer"].tolist() for case in CASES if case.in_features.dtype.itemsize == 4]
LOOKING_UP = f"""
import json, torch
table = json.loads({json.dumps(TABLE)!r})
def run_softmax(in_features, dim):
    answer = table.get(str(in_features.tolist()))
    return in_features * 0 if answer is None else torch.tensor(answer, dtype=in_features.dtype)
"""
COUNTING = f"""
import json, torch
answers = iter(json.loads({json.dumps(IN_ORDER)!r}))
def run_softmax(in_features, dim):
    return torch.tensor(next(answers, 0.0))
"""
CALLING = f"""
def run_softmax(x, dim, depth=30):
    return run_softmax(x, dim, depth - 1) if depth else 1 / 0  # {"x" * (512 << 10)}
"""

# Named as in the other catalogues; the file or folder, and what is in it beside wrong adapters, or its source. What is
# a path is a link to it.
ATTACKS: dict[str, tuple[str, Mapping[str, str | Path] | str]] = {
    # Look each public input up in a table of the public answers.
    "public_answers: forged: the answer is wrong": ("public_answers.py", LOOKING_UP),
    # Return the public answers in the order in which the public tests ask.
    "counted_calls: forged: the answer has shape": ("counted_calls.py", COUNTING),
    # Raise an exception in thirty calls of one line of 512 KiB, which a report would quote for each.
    "long_line: flooded: ZeroDivisionError": ("long_line.py", CALLING),
    # Bring a conftest.py that makes every report a good one.
    "conftest: forged: the answer is wrong": ("conftest", {"conftest.py": PASSING, "tests/conftest.py": PASSING}),
    # Bring a pytest.ini by which the tests are collected and not run.
    "pytest_ini: forged: the answer is wrong": ("pytest_ini", {"pytest.ini": "[pytest]\naddopts = --collect-only\n"}),
    # Bring modules named like those that a grader and its Python start with.
    "shadowed_libraries: refused: the answer is wrong": (
        "shadowed_libraries",
        {f"{name}.py": "raise ImportError('shadowed')\n" for name in SHADOWED}
        | {"evil.pth": "import os; os._exit(0)\n", "setup.cfg": "[tool:pytest]\n"},
    ),
    # Bring tests that are easy, under the names of the suite's, and an assignment in which nothing else counts.
    "own_tests: refused: the answer is wrong": (
        "own_tests",
        {"tests/test_1_softmax.py": EASY, "whichline_grader/hidden/test_1_softmax.py": EASY, "assignment.toml": ""},
    ),
    # Hand in an archive that unpacks into the folders above.
    "climbing_archive: refused: expected paths inside the submission": ("climbing_archive.zip", CLIMBING),
    # Hand in adapters that are a symbolic link into the grader's files.
    "linking_archive: refused: is a link or a device": ("linking_archive.zip", {"adapters.py": ROOT / "adapters.py"}),
    "linking_folder: forged: is a link or a device": ("linking_folder", {"adapters.py": ROOT / "adapters.py"}),
    # Hand in an archive of a few kilobytes that expands to 32 MiB.
    "exploding_archive: refused: hand in only your own code": ("exploding_archive.zip", LARGE),
    # Hand in an archive of a few hundred bytes of which one byte cannot be read without unpacking 32 MiB.
    "bzip2_archive: refused: neither stored nor deflated": ("bzip2_archive.zip", LARGE),
    # Hand in so many files with names so long that a list of them is too long for the worker's channel.
    "long_names_together: killed: expected paths of Python files of at most": (
        "long_names_together.zip",
        {f"{number}{chr(0x1F600) * 229}.py": "" for number in range(998)},
    ),
    # Carry the name of a file that grading writes.
    "name_of_the_gradebook: refused: the answer is wrong": ("gradebook.sqlite.zip", {}),
    "name_of_the_grades: refused: the answer is wrong": ("grades.csv.zip", {}),
    # Carry a name with HTML, a line break, a terminal escape and a formula for spreadsheets.
    "name_with_markup: refused: the answer is wrong": ("=1+1<script>alert(1)<\nscript>\x1b[2J`|.zip", {}),
    # Carry a name with a byte that is not UTF-8.
    "name_that_is_no_text: refused: the answer is wrong": ("no_text_\udcff.zip", {}),
    # Carry a name as long as the file system allows, around a file with a name of 10,000 characters.
    "long_names: killed: expected printable paths of at most": (f"{'n' * 251}.zip", {f"{'m' * 10_000}.py": ""}),
}


def find(name: str) -> tuple[str, Mapping[str, str | Path] | str]:
    return next(entry for head, entry in ATTACKS.items() if head.startswith(f"{name}: "))


def write_archive(name: str, folder: Path) -> Path:
    file, content = find(name)
    path = folder / file
    if isinstance(content, str):
        path.write_text(content)
    elif path.suffix == ".zip":
        _write_zip(path, {"adapters.py": WRONG, **content})
    else:
        _write_tree(path, {"adapters.py": WRONG, **content})
    return path


def _write_zip(path: Path, entries: Mapping[str, str | Path]) -> None:
    compression = zipfile.ZIP_BZIP2 if path.stem == "bzip2_archive" else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(path, "w") as file:
        for name, content in entries.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (stat.S_IFLNK | 0o777 if isinstance(content, Path) else stat.S_IFREG | 0o644) << 16
            file.writestr(entry, str(content), compression)


def _write_tree(folder: Path, files: Mapping[str, str | Path]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(content) if isinstance(content, Path) else path.write_text(content)
