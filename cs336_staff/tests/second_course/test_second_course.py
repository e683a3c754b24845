"""Another assignment, made as an instructor elsewhere would make it: what is in this folder, and nothing else.

It is laid over a copy of the tree without the first assignment; no file of the engine is changed.
"""

import re
import shutil
import subprocess
import sys
from os import environ
from pathlib import Path

import pytest

from cs336_staff.tests.files import commit_all, copy_tree

pytestmark = pytest.mark.slow

OVERLAY = Path(__file__).parent
FIRST = (  # what the first assignment consists of
    r"(adapters\.py|assignment\.toml|(tests|fixtures|docs|cs336_staff/tests|cs336_staff/hidden/fixtures)/.*"
    r"|cs336_(kit|staff)/problems/(?!__init__).*|cs336_basics/(given/.*|nn/(?!__init__).*))"
)
ITS_WORDS = re.compile(r"\b(attention|query|queries|masks?|softmax|rope|heads?)\b", re.IGNORECASE)
NO_TEXT = re.compile(r"<(script|style)>.*?</\1>|<[^>]*>", re.DOTALL)


def run(course: Path, *command: str, module: str = "cs336_kit") -> str:
    """Run a command there and return what it prints, in which nothing is of the first assignment."""
    # The environment is named: a handout that is tried there must not be installed into it.
    variables = environ | {"UV_PROJECT_ENVIRONMENT": str(course / ".venv"), "COLUMNS": "120"}
    variables["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
    ran = subprocess.run(
        [sys.executable, "-m", module, *command], cwd=course, env=variables, capture_output=True, text=True, check=False
    )
    printed = ran.stdout + ran.stderr
    assert ran.returncode == 0, printed
    assert not ITS_WORDS.search(printed), printed
    return printed


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("second") / "course"
    copy_tree(root, left_out=FIRST)
    not_laid = shutil.ignore_patterns("__pycache__", "conftest.py", Path(__file__).name)
    shutil.copytree(OVERLAY, root, dirs_exist_ok=True, ignore=not_laid)
    assert "6 of 6 public" in run(root, "staff", "fixtures")
    commit_all(root)
    return root


def test_the_copy_is_what_runs(course: Path) -> None:
    program = "import cs336_kit, cs336_staff; print(cs336_kit.__file__, cs336_staff.__file__)"
    files = subprocess.check_output([sys.executable, "-c", program], cwd=course, text=True).split()
    assert all(Path(file).is_relative_to(course) for file in files)


def test_students_see_that_all_is_right(course: Path) -> None:
    assert "6 passed" in run(course, "-q", module="pytest")
    assert "7 of 7 points" in run(course, "check")


def test_staff_are_told_that_the_suites_are_fit(course: Path) -> None:
    printed = run(course, "staff", "verify")
    assert re.search(r"Right programs pass both suites\n +2 of 2, no errors", printed), printed


def test_a_mistake_is_graded_and_told(course: Path) -> None:
    for name in ("right", "wrong"):
        shutil.copytree(course / "cs336_basics", course / f"submissions/{name}/cs336_basics")
        shutil.copy(course / "adapters.py", course / f"submissions/{name}")
    wrong = course / "submissions/wrong/cs336_basics/nn/functions.py"
    wrong.write_text(wrong.read_text().replace(" + self.eps)", ") + self.eps"))
    run(course, "staff", "grade", "submissions/right", "submissions/wrong")
    run(course, "staff", "report", "results")
    told = {name: (course / f"results/{name}/feedback.md").read_text() for name in ("right", "wrong")}
    pages = [path.read_text() for path in (course / "results").rglob("*.html")]
    assert len(pages) == 3
    assert not ITS_WORDS.findall(NO_TEXT.sub("", "".join((*told.values(), *pages))))
    assert "7.00 of 7 points" in told["right"]
    (rmsnorm,) = map(float, re.findall(r"\| (\d\.\d\d) / \d \|", told["wrong"]))
    assert rmsnorm < 2
    assert "Expected the root mean square; found" in told["wrong"]


def test_a_handout_is_made_and_tried(course: Path, tmp_path: Path) -> None:
    assert "gets 7 of 7 points" in run(course, "staff", "handout", str(tmp_path / "out"))
    assert "(3 points)" in (tmp_path / "out/tree/docs/assignment.md").read_text()
    assert "raise NotImplementedError" in (tmp_path / "out/tree/cs336_basics/nn/functions.py").read_text()
