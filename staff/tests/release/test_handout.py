"""What students receive holds no solution and nothing of the staff's, or nothing is written."""

import base64
import io
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import pytest

from staff.tests import ROOT
from staff.tests.files import write_files
from whichline.engine.assignment import load_problems
from whichline.engine.errors import CourseworkError
from whichline.engine.problem_folder import STARTER
from whichline.submission.archive import read_archive
from whichline.submission.update import read_update
from whichline_grader.release import handout
from whichline_grader.release.kit import make_wheel
from whichline_grader.release.stages import Stage
from whichline_grader.release.texts import check_texts
from whichline_grader.release.trial_run import walk
from whichline_grader.release.verify import verify_handout

SOLVED = """\
import math
from itertools import product

import torch
from torch import Tensor

from cs336_basics.functional import weighted_values


class Head:
    # BEGIN SOLUTION
    scale: float
    # END SOLUTION

    def forward(self, x):
        # BEGIN SOLUTION
        return self.attend_to_everything(x)
        # END SOLUTION

    # BEGIN SOLUTION
    def attend_to_everything(self, x):
        return weighted_values(*product(x.mean(-2, keepdim=True).expand_as(x)))

    # END SOLUTION
"""

ASSIGNMENT = 'command = "cs336"\npackage = "cs336_basics"\npoints = 0\nproblem = []\n'
PREVIOUS = {"tests/test_gone.py": b"", "adapters.py": b""}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small solved tree that git knows."""
    files = {"cs336_basics/head.py": SOLVED, "README.md": "for staff\n", "notes.txt": "not among what ships\n"}
    files |= {"assignment.toml": ASSIGNMENT, "pyproject.toml": '[project]\nrequires-python = ">=3.11"\n'}
    files |= {f"{handout.OVERLAY}/README.md": "for students\n", f"{handout.OVERLAY}/pyproject.toml": 'kit = "KIT"\n'}
    write_files(tmp_path, files | {"staff/secret.py": ""})
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    return tmp_path


def git(tree: Path, *command: str) -> str:
    return subprocess.run(["git", *command], cwd=tree, capture_output=True, text=True, check=True).stdout


def test_solutions_are_cut_out_and_the_overlay_is_laid_over(tree: Path) -> None:
    files = handout.make_handout(tree, "1")
    cut = "import math\n\nimport torch\n\n\nclass Head:\n    def forward(self, x):\n        raise NotImplementedError\n"
    (kit,) = (name for name in files if name.startswith("kit/"))
    assert {name: content.decode() for name, content in files.items() if name != kit} == {
        "README.md": "for students\n",
        "assignment.toml": ASSIGNMENT,
        "cs336_basics/head.py": cut,
        "pyproject.toml": f'kit = "{kit}"\n',
    }


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("# BEGIN SOLUTION\n", "a.py:1: # BEGIN SOLUTION without its partner"),
        ("x = 1\n# END SOLUTION\n", "a.py:2: # END SOLUTION without its partner"),
        ("# BEGIN SOLUTION\n# BEGIN SOLUTION\n# END SOLUTION\n", "a.py:2: # BEGIN SOLUTION without its partner"),
    ],
)
def test_markers_that_do_not_pair(source: str, message: str) -> None:
    with pytest.raises(CourseworkError, match=message):
        handout.cut_solution("a.py", source)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("docs/a.md", "write return self.attend_to_everything(x)", "docs/a.md:1: a line of the solution, return self"),
        ("docs/a.md", "# BEGIN SOLUTION", "docs/a.md:1: 'BEGIN SOLUTION' would reach students"),
        ("docs/link", None, "docs/link: not a plain file"),
        ("cs336_basics/draft.py", "", "cs336_basics/draft.py: git does not know it"),
        ("docs/a.md", "see whichline_grader", "docs/a.md:1: 'whichline_grader' would reach students"),
        ("fixtures/a.bin", "\0return self.attend_to_everything(x)\0", "fixtures/a.bin:1: a line of the solution"),
    ],
)
def test_what_may_not_leave_stops_the_handout(tree: Path, name: str, text: str | None, message: str) -> None:
    (tree / name).parent.mkdir(exist_ok=True)
    (tree / name).symlink_to("staff") if text is None else (tree / name).write_text(text)
    if "draft" not in name:
        git(tree, "add", "--all")
    with pytest.raises(CourseworkError, match=message):
        handout.make_handout(tree, "1")


def test_all_that_may_not_leave_is_listed_at_once(tree: Path) -> None:
    told = "whichline_grader\nand\nreturn self.attend_to_everything(x)\n"
    write_files(tree, {"docs/a.md": told, "docs/b.md": "# END SOLUTION\n"})
    git(tree, "add", "--all")
    with pytest.raises(CourseworkError) as refused:
        handout.make_handout(tree, "1")
    places = [line.split(": ")[0] for line in str(refused.value).splitlines()]
    assert places == ["docs/a.md:1", "docs/a.md:3", "docs/b.md:1"]
    stage = Stage()
    verify_handout(tree, stage)
    assert stage.errors == str(refused.value).splitlines()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("**Problem `rope` (", "Problem (", "docs: 0 lines begin with **Problem `rope`"),
        ("**Problem `decoding`", "**Problem `rope`", "docs: 2 lines begin with **Problem `rope`"),
        ("\n## B2", "\n**Problem `x`**\n## B2", "docs: a line begins with **Problem `x`, which is not handed out"),
    ],
)
def test_a_text_that_does_not_go_with_the_problems(old: str, new: str, message: str) -> None:
    texts = {path.name: path.read_text().replace(old, new) for path in ROOT.glob("docs/*.md")}
    with pytest.raises(CourseworkError, match=re.escape(message)):
        check_texts(texts, load_problems(ROOT))


def test_a_first_line_that_says_what_to_change_is_noticed() -> None:
    files = {"a.py": b'"""CHANGE: all of it."""\n', "b.toml": b"# CHANGE: the name\n", "c.md": b"Text\nCHANGE: no\n"}
    assert handout.list_unchanged(files) == ["a.py", "b.toml"]


def test_a_folder_in_use_is_left_alone(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    out = tmp_path_factory.mktemp("out")
    (out / "mine").touch()
    with pytest.raises(CourseworkError, match="is not an empty folder"):
        handout.write_handout(handout.make_handout(tree, "1"), "1", out, {})
    assert [path.name for path in out.iterdir()] == ["mine"]


@pytest.fixture(scope="module")
def files() -> Mapping[str, bytes]:
    """The handout of this tree."""
    return handout.make_handout(ROOT, "1")


@pytest.fixture(scope="module")
def out(files: Mapping[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which it is written."""
    out = tmp_path_factory.mktemp("handout") / "out"
    handout.write_handout(files, "1", out, PREVIOUS)
    return out


@pytest.mark.nightly
def test_twice_gives_the_same_bytes_and_one_commit(out: Path, tmp_path: Path) -> None:
    handout.write_handout(handout.make_handout(ROOT, "1"), "1", tmp_path / "two", PREVIOUS)
    digests = []
    for folder in (out, tmp_path / "two"):
        commits = git(folder / "tree", "log", "--format=%H")
        digests.append((commits, *(sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.zip")))))
    assert digests[0] == digests[1]
    assert digests[0][0].count("\n") == 1
    with zipfile.ZipFile(out / "handout-1.zip") as archive:
        assert {name.partition("/")[0] for name in archive.namelist()} == {"assignment"}
    files = read_archive(out / "handout-1.zip", handout.MANIFEST, handout.FOLDER)[1]
    assert "uv.lock" in files
    assert files[".python-version"].decode() == "{}.{}\n".format(*sys.version_info)


@pytest.mark.nightly
def test_an_update_takes_away_what_is_gone_and_no_file_of_the_students(out: Path) -> None:
    update = read_update(out / "update-1.zip")
    assert update.removed == ("tests/test_gone.py",)
    assert len([name for name in update.files if name.endswith(".whl")]) == 1
    assert "tests/test_1_softmax.py" in update.files
    assert not any(name.startswith(("adapters", "cs336_basics")) for name in update.files)


def test_pictures_are_those_that_the_texts_show(files: Mapping[str, bytes]) -> None:
    texts = b"".join(content for name, content in files.items() if name.endswith(".md")).decode()
    shown = {f"docs/{picture}" for picture in re.findall(r"\]\((pictures/.*?)\)", texts)}
    assert {name for name in files if name.startswith("docs/pictures/")} == shown


def test_the_folder_is_the_students(files: Mapping[str, bytes]) -> None:
    """Some files that uv writes come on top."""
    assert b"raise NotImplementedError" in files["cs336_basics/nn/functional.py"]
    assert not any(name.startswith(("staff", "whichline", ".ci")) for name in files)
    theirs = [name for name in files if not name.startswith(("fixtures/", "docs/pictures/", "."))]
    assert len([*theirs, ".gitignore", ".python-version", "uv.lock"]) <= 40
    assert sum(files[name].count(b"\n") for name in theirs if name.endswith(".py")) < 1_500


def test_the_kit_is_a_wheel_with_a_version_of_its_own(files: Mapping[str, bytes]) -> None:
    (name,) = (name for name in files if name.endswith(".whl"))
    assert f'cs336-kit = {{ path = "{name}" }}' in files["pyproject.toml"].decode()
    with zipfile.ZipFile(io.BytesIO(files[name])) as wheel:
        contents = {entry: wheel.read(entry) for entry in wheel.namelist()}
    about = f"cs336_kit-{name.split('-')[1]}.dist-info/"
    for row in contents[f"{about}RECORD"].decode().splitlines()[:-1]:
        entry, digest, size = row.split(",")
        assert base64.urlsafe_b64decode(f"{digest.removeprefix('sha256=')}=") == sha256(contents[entry]).digest()
        assert int(size) == len(contents[entry])
    sources = {entry: content for entry, content in contents.items() if not entry.startswith(about)}
    engine = {entry for entry in sources if entry.startswith("whichline/")}
    assert engine == {*git(ROOT / "packages/whichline", "ls-files", "whichline").split()}
    ours = {entry for entry in git(ROOT, "ls-files", "problems", "lab").split() if "/staff/" not in entry}
    students = [name for name in files if name.startswith(("adapters", "cs336_basics/"))]
    ours |= {f"problems/{STARTER}/{name}" for name in students}
    assert {*sources} == engine | ours
    assert all(sources[f"problems/{STARTER}/{name}"] == files[name] for name in students)
    assert make_wheel("cs336", "1", ">=3.11", {entry: sources[entry] for entry in sorted(ours)}) == (name, files[name])
    other = make_wheel("cs336", "1", ">=3.11", {entry: sources[entry] + b"#" for entry in ours})[0]
    assert re.fullmatch(r"kit/cs336_kit-1\.post\d+-py3-none-any\.whl", other)
    assert other != name


@pytest.mark.slow
def test_a_file_that_needs_what_went_with_the_solution(files: Mapping[str, bytes], tmp_path: Path) -> None:
    write_files(tmp_path, files)
    module = tmp_path / "cs336_basics/nn/attention_module.py"
    module.write_text(module.read_text() + "\nfrom cs336_basics.nn.functional import weighted_values\n")
    said = r"a file cannot be imported: cs336_basics/nn/attention_module.py, line \d+: ImportError: cannot import"
    with pytest.raises(CourseworkError, match=said):
        walk(ROOT, tmp_path)
