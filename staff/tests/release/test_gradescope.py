"""The autograder's archive, laid out and run as Gradescope's container does it."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from staff.tests.container import run_in_container
from staff.tests.grading.conftest import invoke
from staff.tools.student import ROOT, write_submission
from whichline_grader.release.gradescope import PYTHON, write_autograder
from whichline_grader.release.trial_run import lend_bytecode
from whichline_grader.sandbox.limits import Limits

# It looks for whatever a container has that is none of its business; then it answers wrongly, and floods the memory.
PROBE = """
import os
top = "/autograder"

def attempt(reach):
    try:
        print("reached:", reach())
    except OSError as refused:
        print("refused", refused.errno)

for folder in ("", "/source", "/source/staff", "/source/problems", "/submission", "/results"):
    attempt(lambda: os.listdir(top + folder)[:3])
    attempt(lambda: open(top + folder + "/cs336-probe", "w"))
for file in (
    "/run_autograder", "/submission_metadata.json", "/submission/adapters.py", "/source/assignment.toml",
    "/source/setup.sh", "/source/staff/course.toml", "/source/problems/softmax/reference.py",
):
    attempt(lambda: open(top + file).read()[:20])

def run_linear(d_in, d_out, weights, in_features):
    blocks = []
    while in_features.ndim == 1:
        blocks.append(torch.ones(1 << 22))
    return in_features
"""

# The first line is what many courses ship. The second asks for a package that nobody has.
VERSIONS = """
import importlib.metadata
__version__ = importlib.metadata.version("cs336_basics")
__requires__ = importlib.metadata.requires("anything-else")
"""

# The interpreter and the build of torch are those of this environment: uv then links files that its cache has, which
# takes neither time nor space.
BACKEND = "--torch-backend cpu " * version("torch").endswith("+cpu")
HERE = {
    f"--managed-python --python {PYTHON} ": f"--python {sys.executable} ",
    "--torch-backend cpu --compile-bytecode ": f"{BACKEND}--offline ",
}


def lay_out(autograder: Path) -> None:
    source = autograder / "source"
    write_autograder(ROOT, autograder.parent / "autograder.zip")
    with zipfile.ZipFile(autograder.parent / "autograder.zip") as archive:
        archive.extractall(source)
    shutil.copyfile(source / "run_autograder", autograder / "run_autograder")
    (autograder / "results").mkdir()
    with (write_submission(autograder.parent / "ada", PROBE) / "cs336_basics" / "__init__.py").open("a") as file:
        file.write(VERSIONS)
    (autograder / "submission_metadata.json").write_text('{"id": 1, "users": [{"name": "Ada"}]}')
    # All lines of setup.sh from here on: those above install the system's packages and uv.
    lines = (source / "setup.sh").read_text()
    lines = lines[lines.index("uv venv") :]
    for there, here in HERE.items():
        assert there in lines
        lines = lines.replace(there, here)
    lines = re.sub("^(uv pip .*) --offline (.*)$", r"\g<0> || \1 \2", lines, flags=re.MULTILINE)
    environment = os.environ | {"UV_COMPILE_BYTECODE": "false", "UV_NO_PROGRESS": "true"}
    subprocess.run(["/bin/bash", "-euc", lines], cwd=source, env=environment, check=True)
    lend_bytecode(source / ".venv")  # compiling torch takes 20 seconds


@pytest.mark.nightly
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be root in a container")
def test_the_archive_grades_a_submission_in_a_container(tmp_path):
    autograder = tmp_path / "autograder"
    lay_out(autograder)
    binds = ["--bind", autograder, "/autograder", "--ro-bind", tmp_path / "ada", "/mnt", "--tmpfs", ROOT]
    (command,) = re.findall(r"^CMD (.*)$", (autograder / "source" / "Dockerfile").read_text(), re.MULTILINE)
    # It ends as Gradescope does, which puts the submission there itself: with /autograder/run_autograder.
    finished = run_in_container(json.loads(command), [*binds, "--chdir", "/autograder"], memory_bytes=3 << 30)
    assert finished.returncode == 0, finished.stderr
    results = json.loads((autograder / "results" / "results.json").read_text())
    assert results["extra_data"]["sandbox"] == "process+uid+seccomp"
    assert results["score"] == 24, results["output"]  # all but the linear layer
    assert [path.name for path in (autograder / "results" / "answers").iterdir()] == [results["extra_data"]["content"]]
    assert {test["visibility"] for test in results["tests"]} == {"visible", "after_published"}
    assert "refused" in results["output"]
    assert "reached" not in results["output"]
    assert not list(autograder.rglob("cs336-probe"))
    assert any("more than 1024 MiB of memory" in test["output"] for test in results["tests"])


def test_the_archive_holds_what_grading_needs_and_no_more(tmp_path):
    write_autograder(ROOT, tmp_path / "autograder.zip")
    with zipfile.ZipFile(tmp_path / "autograder.zip") as archive:
        names = archive.namelist()
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
        dockerfile = archive.read("Dockerfile").decode()
        scripts = [archive.read(name) for name in ("setup.sh", "run_autograder")]
        stated = tomllib.loads(archive.read("staff/course.toml").decode())
    assert stated == {"muted": [], "limits": vars(Limits())}
    assert not [name for name in names if name.startswith(("cs336_basics/nn", "staff/tests", "staff/tools"))]
    assert modes["setup.sh"] == modes["run_autograder"] == 0o755
    assert f"--python {sys.version_info.major}.{sys.version_info.minor} .venv" in scripts[0].decode()
    assert "RUN bash source/setup.sh && cp source/run_autograder . " in dockerfile
    for script in scripts:
        subprocess.run(["/bin/bash", "-n"], input=script, check=True)


@pytest.mark.parametrize("place", ["missing/autograder.zip", "/dev/full"])
def test_a_place_that_cannot_be_written_is_told_in_a_line(tmp_path, monkeypatch, place):
    monkeypatch.chdir(ROOT)
    finished = invoke("gradescope", "-o", tmp_path / place)
    assert finished.exit_code == 1
    assert f"{tmp_path / place} cannot be written: No s" in finished.output
