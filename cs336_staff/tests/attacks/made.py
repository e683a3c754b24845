"""Attacks that are not a single file: folders, archives, names, and sources too long to be stored."""

import json
import stat
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from cs336_kit.engine.case import case_names, load_case

WRONG = "def run_softmax(in_features, dim):\n    return in_features * 0\n"
PASSING = """
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    call.excinfo = None
    return (yield)
"""
BROKEN = "raise ImportError('shadowed')\n"
MAKERS: list[Callable[[Path, Path], Path]] = []


def make(folder: Path, root: Path) -> Iterator[tuple[Path, str]]:
    """Write each into `folder`; its path and its docstring. `root` is the folder of the assignment."""
    for maker in MAKERS:
        yield maker(folder, root), maker.__doc__ or ""


def attack(maker: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
    MAKERS.append(maker)
    return maker


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, source in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return folder


def archive(
    path: Path,
    entries: dict[str, str],
    mode: int = stat.S_IFREG | 0o644,
    compression: int = zipfile.ZIP_DEFLATED,
) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in entries.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            file.writestr(entry, content, compression)
    return path


@attack
def public_answers(folder: Path, root: Path) -> Path:
    """Look each public input up in a table of the public answers.

    plain: forged
    report: the answer is wrong
    earns: test_softmax
    """
    table = {}
    for name in case_names(root / "fixtures", "softmax/*"):
        case = load_case(root / "fixtures", name)
        table[str(case.in_features.tolist())] = case.expected["answer"].tolist()
    path = folder / "public_answers.py"
    path.write_text(
        f"import json, torch\nTABLE = json.loads({json.dumps(table)!r})\n"
        "def run_softmax(in_features, dim):\n"
        "    answer = TABLE.get(str(in_features.tolist()))\n"
        "    return in_features * 0 if answer is None else torch.tensor(answer, dtype=in_features.dtype)\n"
    )
    return path


@attack
def counted_calls(folder: Path, root: Path) -> Path:
    """Return the public answers in the order in which the public tests ask.

    plain: forged
    report: the answer has shape
    """
    cases = [load_case(root / "fixtures", name) for name in case_names(root / "fixtures", "softmax/*")]
    answers = [case.expected["answer"].tolist() for case in cases if case.in_features.dtype.itemsize == 4]
    path = folder / "counted_calls.py"
    path.write_text(
        f"import json, torch\nANSWERS = iter(json.loads({json.dumps(answers)!r}))\n"
        "def run_softmax(in_features, dim):\n    return torch.tensor(next(ANSWERS, 0.0))\n"
    )
    return path


@attack
def long_line(folder: Path, root: Path) -> Path:
    """Raise an exception in thirty calls of one line of 512 KiB, which a report would quote for each.

    plain: flooded
    report: ZeroDivisionError
    """
    path = folder / "long_line.py"
    line = f"    return run_softmax(x, dim, depth - 1) if depth else 1 / 0  # {'x' * (512 << 10)}\n"
    path.write_text(f"def run_softmax(x, dim, depth=30):\n{line}")
    return path


@attack
def conftest(folder: Path, root: Path) -> Path:
    """Bring a conftest.py that makes every report a good one.

    plain: forged
    report: the answer is wrong
    """
    files = {"adapters.py": WRONG, "conftest.py": PASSING, "tests/conftest.py": PASSING}
    return tree(folder / "conftest", files)


@attack
def pytest_ini(folder: Path, root: Path) -> Path:
    """Bring a pytest.ini by which the tests are collected and not run.

    plain: forged
    report: the answer is wrong
    """
    return tree(folder / "pytest_ini", {"adapters.py": WRONG, "pytest.ini": "[pytest]\naddopts = --collect-only\n"})


@attack
def shadowed_libraries(folder: Path, root: Path) -> Path:
    """Bring modules named like those that a grader and its Python start with.

    plain: refused
    report: the answer is wrong
    """
    names = ("torch", "numpy", "json", "struct", "pytest", "sitecustomize", "usercustomize", "cs336_staff/__init__")
    files = {f"{name}.py": BROKEN for name in names}
    files |= {"adapters.py": WRONG, "evil.pth": "import os; os._exit(0)\n", "setup.cfg": "[tool:pytest]\n"}
    return tree(folder / "shadowed_libraries", files)


@attack
def own_tests(folder: Path, root: Path) -> Path:
    """Bring tests that are easy, under the names of the suite's, and an assignment in which nothing else counts.

    plain: refused
    report: the answer is wrong
    """
    tests = "import pytest\n@pytest.mark.parametrize('case', ['3d-last-dim'])\ndef test_softmax(case): pass\n"
    easy = {"tests/test_1_softmax.py": tests, "cs336_staff/hidden/test_1_softmax.py": tests, "assignment.toml": ""}
    return tree(folder / "own_tests", {"adapters.py": WRONG, **easy})


@attack
def climbing_archive(folder: Path, root: Path) -> Path:
    """Hand in an archive that unpacks into the folders above.

    plain: refused
    report: expected paths inside the submission
    """
    return archive(folder / "climbing_archive.zip", {"adapters.py": WRONG, "../../cs336-attack.py": WRONG})


@attack
def linking_archive(folder: Path, root: Path) -> Path:
    """Hand in an archive whose adapters are a symbolic link into the grader's files.

    plain: refused
    report: is a link or a device
    """
    target = str(root / "adapters.py")
    return archive(folder / "linking_archive.zip", {"adapters.py": target}, stat.S_IFLNK | 0o777)


@attack
def linking_folder(folder: Path, root: Path) -> Path:
    """Hand in a folder whose adapters are a symbolic link to the solution.

    plain: forged
    report: is a link or a device
    """
    (folder / "linking_folder").mkdir()
    (folder / "linking_folder" / "adapters.py").symlink_to(root / "adapters.py")
    return folder / "linking_folder"


@attack
def exploding_archive(folder: Path, root: Path) -> Path:
    """Hand in an archive of a few kilobytes that expands to 32 MiB.

    plain: refused
    report: hand in only your own code
    """
    return archive(folder / "exploding_archive.zip", {"adapters.py": WRONG, "model.py": "#" * (32 << 20)})


@attack
def bzip2_archive(folder: Path, root: Path) -> Path:
    """Hand in an archive of a few hundred bytes of which one byte cannot be read without unpacking 32 MiB.

    plain: refused
    report: neither stored nor deflated
    """
    entries = {"adapters.py": WRONG, "model.py": "#" * (32 << 20)}
    return archive(folder / "bzip2_archive.zip", entries, compression=zipfile.ZIP_BZIP2)


@attack
def long_names_together(folder: Path, root: Path) -> Path:
    """Hand in so many files with names so long that a list of them is too long for the worker's channel.

    plain: killed
    report: expected paths of Python files of at most
    """
    names = (f"{number}{chr(0x1F600) * 229}.py" for number in range(998))
    return archive(folder / "long_names_together.zip", {"adapters.py": WRONG, **dict.fromkeys(names, "")})


@attack
def name_of_the_gradebook(folder: Path, root: Path) -> Path:
    """Carry the name of a file that grading writes.

    plain: refused
    report: the answer is wrong
    """
    return archive(folder / "gradebook.sqlite.zip", {"adapters.py": WRONG})


@attack
def name_of_the_grades(folder: Path, root: Path) -> Path:
    """Carry the name of the file with everyone's grades.

    plain: refused
    report: the answer is wrong
    """
    return archive(folder / "grades.csv.zip", {"adapters.py": WRONG})


@attack
def name_with_markup(folder: Path, root: Path) -> Path:
    """Carry a name with HTML, a line break, a terminal escape and a formula for spreadsheets.

    plain: refused
    report: the answer is wrong
    """
    return archive(folder / "=1+1<script>alert(1)<\nscript>\x1b[2J`|.zip", {"adapters.py": WRONG})


@attack
def name_that_is_no_text(folder: Path, root: Path) -> Path:
    """Carry a name with a byte that is not UTF-8.

    plain: refused
    report: the answer is wrong
    """
    return archive(Path(f"{folder}/no_text_\udcff.zip"), {"adapters.py": WRONG})


@attack
def long_names(folder: Path, root: Path) -> Path:
    """Carry a name as long as the file system allows, around a file with a name of 10,000 characters.

    plain: killed
    report: expected printable paths of at most
    """
    return archive(folder / f"{'n' * 251}.zip", {"adapters.py": WRONG, f"{'m' * 10_000}.py": ""})
