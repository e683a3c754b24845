"""A course does without a problem by one edit, and the handout's text states the points of `assignment.toml`."""

import re
import shutil
from pathlib import Path

import pytest

from staff.tests import ROOT
from staff.tests.files import files_in, leave_out
from whichline.engine.assignment import load_problems
from whichline.engine.errors import CourseworkError
from whichline.engine.toml_file import AssignmentError
from whichline_grader.authoring.programs import RIGHT
from whichline_grader.release import verify
from whichline_grader.release.left_out import remove_left_out
from whichline_grader.release.texts import write_texts
from whichline_grader.release.verify import check_right_style, load_solved_suite

BONUS = "blockwise_attention"
TEXT, BONUS_TEXT = "docs/assignment.md", "docs/bonus.md"


def write_tree(tree: Path, *left_out: str) -> Path:
    """What a handout is made of, without these problems."""
    for name in ("tests", "fixtures", "docs", "problems"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "pictures"))
    for name in ("adapters.py", "README.md", "assignment.toml"):
        shutil.copyfile(ROOT / name, tree / name)
    leave_out(tree, *left_out)
    return tree


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tree(tmp_path_factory.mktemp("tree"), BONUS)


def cut(tree: Path) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The files of a tree with all problems, and without those that are left out."""
    files = {name: content for name, content in files_in(tree).items() if "__pycache__" not in name}
    files |= {file: b"" for each in load_problems(ROOT).values() for file in (*each.files, *each.beside)}
    stated = (ROOT / "assignment.toml").read_bytes()
    return remove_left_out(ROOT, files | {"assignment.toml": stated}), remove_left_out(tree, files)


def test_a_problem_that_is_left_out_leaves_no_file_and_no_line(tree: Path) -> None:
    before, after = cut(tree)
    gone = before.keys() - after.keys()
    code = {name for name in gone if not name.startswith("fixtures/")}
    assert code == {"cs336_basics/nn/blockwise.py", "tests/test_8_blockwise.py"}
    cases = {name.split("/")[1] for name in gone if name.startswith("fixtures/")}
    assert cases == {"blockwise", "blockwise-gradients", "blockwise-last-digit"}
    for name in ("adapters.py", "assignment.toml", BONUS_TEXT):
        assert b"blockwise" not in after[name].lower()
        assert before[name].count(b"\n") > after[name].count(b"\n") + 10
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"adapters.py", "assignment.toml", TEXT, BONUS_TEXT}
    assert b"blockwise.py" not in after[TEXT]


def test_what_two_problems_share_goes_with_the_second(tmp_path: Path) -> None:
    _, one = cut(write_tree(tmp_path / "one", "multihead_attention"))
    assert b"## B1 Attention as a module" in one[BONUS_TEXT]
    assert b"## B2" not in one[BONUS_TEXT]
    every = [problem.id for problem in load_problems(ROOT).values() if problem.bonus]
    _, without = cut(write_tree(tmp_path / "every", *every))
    assert BONUS_TEXT not in without
    assert b"bonus.md" not in without[TEXT]
    assert b"run_scaled_dot_product_attention_module" not in without["adapters.py"]


def test_required_problems_can_be_left_out_with_what_needs_them(tmp_path: Path) -> None:
    _, without = cut(write_tree(tmp_path, "linear", "multihead_self_attention", "multihead_attention", "decoding"))
    assert b"\npoints = 9 " in without["assignment.toml"]
    gone = ("given/self_attention_block.py", "nn/torch_multihead.py", "nn/linear.py")
    assert not {f"cs336_basics/{name}" for name in gone} & without.keys()


def test_a_problem_that_shares_its_section_is_not_cut_by_half(tmp_path: Path) -> None:
    tree = write_tree(tmp_path, BONUS)
    text = (tree / BONUS_TEXT).read_text()
    (tree / BONUS_TEXT).write_text(re.sub(r"^## B4.*$", "### B4", text, flags=re.MULTILINE))
    with pytest.raises(CourseworkError, match=f"with ..Problem `{BONUS}`, which is not handed out; give it a section"):
        cut(tree)


def test_what_a_kept_problem_needs_is_not_left_out(tmp_path: Path) -> None:
    needing = "multihead_self_attention, multihead_attention, decoding"
    message = rf"assignment.toml:\d+: problem.needs names linear, which is left out: leave out {needing} too"
    with pytest.raises(AssignmentError, match=message):
        load_problems(write_tree(tmp_path, "linear"))


def test_what_is_needed_comes_first(tmp_path: Path) -> None:
    stated = (ROOT / "assignment.toml").read_text().replace('needs = ["softmax"]', 'needs = ["rope"]')
    (write_tree(tmp_path) / "assignment.toml").write_text(stated)
    with pytest.raises(AssignmentError, match=r"problem\.needs names rope, which is not an earlier problem"):
        load_problems(tmp_path)


def test_it_is_neither_graded_nor_proved(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = load_solved_suite(tree)
    assert BONUS not in suite.problems
    assert {test.problem for test in suite.tests} == suite.problems.keys()
    without = {call: adapter for call, adapter in RIGHT.items() if call != "run_blockwise_attention"}
    monkeypatch.setattr(verify, "RIGHT_STYLES", {"without": without})
    assert [*check_right_style(suite, "without")] == []


def test_the_text_lists_the_files_of_the_assignment() -> None:
    listed = re.findall(r"^(cs336_basics/nn/\S+) ", (ROOT / TEXT).read_text(), re.MULTILINE)
    written = {file for problem in load_problems(ROOT).values() for file in problem.files}
    assert written <= {*listed} <= {path.relative_to(ROOT).as_posix() for path in ROOT.glob("cs336_basics/nn/*.py")}


def test_the_text_lists_the_works_of_the_assignment() -> None:
    listed = re.findall(r"^\| .* \| `(\w+)` \| [\d.]+", (ROOT / TEXT).read_text(), re.MULTILINE)
    assert listed == [problem.id for problem in load_problems(ROOT).values() if problem.work]


def test_the_texts_state_the_points_of_the_assignment(tree: Path) -> None:
    texts, problems = {name: (ROOT / name).read_text() for name in (TEXT, BONUS_TEXT)}, load_problems(ROOT)
    assert write_texts(texts, problems) == texts, "run: python -m whichline_grader.release.texts"
    wrong = texts[TEXT].replace("(2 points)", "(7 points)").replace("| `linear` | 1 |", "| `linear` | 3 |")
    wrong = wrong.replace("2 + 2 + 3 + 3 points", "9 points")
    assert write_texts(texts | {TEXT: wrong}, problems) == texts
    without = write_texts(texts, load_problems(tree), [BONUS])
    assert without[TEXT] == texts[TEXT].replace("2 + 2 + 3 + 3 points", "2 + 2 + 3 points")
