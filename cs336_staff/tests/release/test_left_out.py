"""A course does without a problem by one edit, and the handout's text states the points of `assignment.toml`."""

import shutil
from pathlib import Path

import pytest

from cs336_kit.engine.assignment import find_root
from cs336_kit.engine.suite import Suite
from cs336_staff.authoring.misconceptions import CATALOGUE
from cs336_staff.release import verify
from cs336_staff.release.left_out import cut, find_left_out
from cs336_staff.release.price_list import price_list
from cs336_staff.release.stages import Stage
from cs336_staff.release.stated_points import TEXT, with_points
from cs336_staff.release.verify import both_suites, verify_misconceptions

ROOT = find_root(Path(__file__).parent)
BONUS = "blockwise_attention"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a handout is made of, with the one edit."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("tests", "fixtures", "docs"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "pictures"))
    for name in ("adapters.py", "README.md"):
        shutil.copyfile(ROOT / name, tree / name)
    stated = (ROOT / "assignment.toml").read_text()
    (tree / "assignment.toml").write_text(stated.replace(f'id = "{BONUS}"\n', f'id = "{BONUS}"\nleft_out = true\n'))
    return tree


@pytest.fixture(scope="module")
def suite(tree: Path) -> Suite:
    return both_suites(tree)


def files_in(tree: Path) -> dict[str, bytes]:
    paths = (path for path in tree.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(tree).as_posix(): path.read_bytes() for path in paths}


def test_a_problem_that_is_left_out_leaves_no_file_and_no_line(tree: Path) -> None:
    before = files_in(tree) | {"cs336_basics/nn/blockwise.py": b"", "cs336_basics/nn/functional.py": b""}
    after = cut(before, find_left_out(tree))
    gone = before.keys() - after.keys()
    assert {name for name in gone if not name.startswith("fixtures/")} == {
        "cs336_basics/nn/blockwise.py",
        "tests/test_8_blockwise.py",
    }
    assert {name.split("/")[1] for name in gone if name.startswith("fixtures/")} == {
        *("blockwise", "blockwise-gradients", "blockwise-last-digit")
    }
    for name in ("adapters.py", "assignment.toml", TEXT):
        assert b"blockwise" not in after[name].lower()
        assert before[name].count(b"\n") > after[name].count(b"\n") + 10
    assert b"blockwise.py" not in after["README.md"]
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"adapters.py", "assignment.toml", "README.md", TEXT}


def test_without_such_a_problem_nothing_is_cut() -> None:
    files = {"assignment.toml": (ROOT / "assignment.toml").read_bytes()}
    assert cut(files, find_left_out(ROOT)) == files


def test_it_is_neither_graded_nor_proved(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    assert BONUS not in suite.problems
    assert {test.problem for test in suite.tests} == suite.problems.keys()
    chosen = {id: CATALOGUE[id] for id in ("softmax-in-place", "blockwise-nothing-rescaled")}
    monkeypatch.setattr(verify, "CATALOGUE", chosen)
    assert [(each.id, each.complaint) for each in verify_misconceptions(suite, Stage())] == [("softmax-in-place", "")]


def test_the_text_states_the_points_of_the_assignment(tree: Path, suite: Suite) -> None:
    text = (ROOT / TEXT).read_text()
    whole = both_suites(ROOT)
    stated = with_points(text, whole.problems, price_list(whole))
    assert stated == text, "run: python -m cs336_staff.release.stated_points"

    wrong = (
        text.replace("(2 points)", "(7 points)").replace("| `linear` | 1 |", "| `linear` | 3 |").replace("0.52", "1")
    )
    assert with_points(wrong, whole.problems, price_list(whole)) == text

    without = cut({TEXT: text.encode()}, find_left_out(tree))[TEXT].decode()
    assert with_points(without, suite.problems, price_list(suite)) == without
