"""The autograder's archive, laid out and run as Gradescope's container does it."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cs336_staff.gradescope import write_autograder
from cs336_staff.tests.grading.test_grade import BONUS, ROOT, write_submission

pytestmark = pytest.mark.slow


def lay_out(folder: Path, addition: str) -> Path:
    autograder = folder / "autograder"
    write_autograder(ROOT, folder / "autograder.zip")
    with zipfile.ZipFile(folder / "autograder.zip") as archive:
        archive.extractall(autograder / "source")
    shutil.copyfile(autograder / "source" / "run_autograder", autograder / "run_autograder")
    # What setup.sh would install.
    (autograder / "source" / ".venv").symlink_to(Path(sys.prefix))
    (autograder / "results").mkdir()
    write_submission(autograder / "submission", addition)
    (autograder / "submission_metadata.json").write_text('{"id": 1, "users": [{"name": "Ada"}]}')
    return autograder


def test_the_archive_grades_a_submission(tmp_path):
    autograder = lay_out(tmp_path, "def run_linear(d_in, d_out, weights, in_features):\n    return in_features")
    finished = subprocess.run(
        ["/bin/bash", autograder / "run_autograder"], capture_output=True, text=True, check=False, timeout=300
    )
    assert finished.returncode == 0, finished.stderr
    results = json.loads((autograder / "results" / "results.json").read_text())
    assert results["score"] == 14 + BONUS
    assert {test["visibility"] for test in results["tests"]} == {"visible", "after_published"}


def test_the_archive_holds_what_grading_needs_and_no_more(tmp_path):
    write_autograder(ROOT, tmp_path / "autograder.zip")
    with zipfile.ZipFile(tmp_path / "autograder.zip") as archive:
        names = archive.namelist()
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
        setup = archive.read("setup.sh").decode()
    assert not [
        name for name in names if name.startswith(("cs336_basics", "cs336_staff/tests", "cs336_staff/benchmarks"))
    ]
    assert modes["setup.sh"] == modes["run_autograder"] == 0o755
    assert "chmod -R go-rwx adapters.py" in setup
