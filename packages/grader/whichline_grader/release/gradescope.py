"""The autograder that Gradescope or Docker runs: a zip with the suite, and what happens in the container.

Written by `staff gradescope`; run in the container as `python -m whichline_grader.release.gradescope /autograder`.
"""

import json
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from whichline.engine.assignment import PROBLEMS, load_problems, read_assignment
from whichline_grader.grading.course import load_course
from whichline_grader.grading.processes import ANSWERS, load_and_start
from whichline_grader.hidden.release import CASES, SECRET, load_release, name_folder
from whichline_grader.paths import COURSE, ENGINE, GRADER, STAFF
from whichline_grader.sandbox.submission import GIVEN

FILES = ("adapters.py", "assignment.toml", "pyproject.toml")
FOLDERS = ("tests", "fixtures", PROBLEMS, STAFF)
LEFT_OUT = (
    "__pycache__",
    *("roster.csv", "groups.csv"),  # of a course that has no folder for them
    COURSE,  # it is written
    *(f"{STAFF}/{folder}/" for folder in ("handout", "tests", "tools")),
)
# What the grader needs.
PACKAGES = (
    *("beartype", "click", "einops", "executing", "jaxtyping", "msgspec", "numpy"),
    *("pytest", "pyyaml", "rich", "safetensors", "torch"),
)

PYTHON = "{}.{}".format(*sys.version_info)  # what students have, and what the versions of the packages fit

SETUP = """\
#!/usr/bin/env bash
# Run once, when the container is built.
set -euo pipefail
cd "$(dirname "$0")"
apt-get update
apt-get install --yes --no-install-recommends bubblewrap ca-certificates libseccomp2 python3-pip
pip3 install uv || pip3 install --break-system-packages uv
# Submissions run as another user, who must be able to read the interpreter and the packages, and nothing else here.
export UV_PYTHON_INSTALL_DIR="$PWD/.python"
uv venv --managed-python --python {python} .venv
# Compiled now: every submission gets a fresh container, which would compile all that it imports.
uv pip install --python .venv/bin/python --torch-backend cpu --compile-bytecode --requirement requirements.txt
find . -mindepth 1 -maxdepth 1 ! -name .venv ! -name .python -exec chmod -R go-rwx {{}} +
"""

RUN = """\
#!/usr/bin/env bash
# Run for every submission, as root; source/, submission/ and results/ lie beside it.
set -euo pipefail
root="$(cd "$(dirname "$0")" && pwd)"
cd "$root/source"
# The submission runs as another user, who may pass through these folders on the way to the interpreter.
find "$root" -mindepth 1 -maxdepth 1 ! -name source -exec chmod -R go-rwx {} +
chmod 711 "$root" "$root/source"
exec .venv/bin/python -m whichline_grader.release.gradescope "$root"
"""

DOCKERFILE = """\
# One submission in a container like Gradescope's. In the folder with the unpacked archive:
#   docker build -t autograder .
#   docker run --rm --network none --memory 3g -v SUBMISSION:/mnt:ro -v RESULTS:/autograder/results autograder
FROM ubuntu:24.04
WORKDIR /autograder
COPY . source
RUN bash source/setup.sh && cp source/run_autograder . && mkdir results
CMD ["bash", "-c", "cp -r /mnt submission && exec bash ./run_autograder"]
"""

README = """\
# The assignment on Gradescope

Upload this archive as the autograder of a programming assignment worth {points:g} points.

- Base image: Ubuntu 22.04 or later. Container: at least 3 GB of memory. torch is installed for the CPU only.
- Where the container has no user namespaces the sandbox is the `process` layer: the submission runs as `nobody` behind
  seccomp, and can neither read the suite nor write anywhere.
- Students see public tests at once and hidden tests when grades are published.
- When the grader itself fails it writes no results, and Gradescope says that the autograder failed: run it again.

The Dockerfile grades one submission on a machine of your own. The image holds the hidden suite: keep it private.
"""


def write_autograder(root: Path, path: Path) -> None:
    """Write the archive for the assignment in `root`; the packages have the versions that are installed here.

    Of what a course keeps to itself it has the secret and the hidden cases, in a folder beside its `course.toml`, which
    states the limits and nothing about students.
    """
    release = load_release()
    points = sum(problem.points for problem in load_problems(root).values() if not problem.bonus)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in (("setup.sh", SETUP.format(python=PYTHON)), ("run_autograder", RUN)):
            info = zipfile.ZipInfo(name)
            info.external_attr = 0o755 << 16
            archive.writestr(info, text)
        archive.writestr("README.md", README.format(points=points))
        archive.writestr("Dockerfile", DOCKERFILE)
        pinned = [f"{name}=={version(name).partition('+')[0]}" for name in (*PACKAGES, *read_assignment(root).packages)]
        archive.writestr("requirements.txt", "\n".join(pinned) + "\n")
        for file, name in _list_shipped(root):
            archive.write(file, name)
        course = load_course(root)
        limits = "\n".join(f"{name} = {limit}" for name, limit in vars(course.limits).items())
        stated = f"muted = {json.dumps(course.muted)}\n[limits]\n{limits}\n"
        if release.folder is None:
            archive.writestr(COURSE, stated)
            return
        folder = Path(COURSE).parent / "course"
        archive.writestr(COURSE, name_folder(folder.name, release.secret) + stated)
        archive.writestr(str(folder / SECRET), release.secret)
        for file in sorted(release.cases.rglob("*.safetensors")):
            archive.write(file, folder / CASES / file.relative_to(release.cases))


def _list_shipped(root: Path) -> Iterator[tuple[Path, str]]:
    """The files of the assignment, the engine and the grader, each with its name in the archive."""
    yield from ((root / file, file) for file in FILES)
    folders = [(root, folder) for folder in (*FOLDERS, f"{read_assignment(root).package}/{GIVEN}")]
    folders += [(package.parent, package.name) for package in (ENGINE, GRADER)]
    for place, folder in folders:
        for file in sorted((place / folder).rglob("*")):
            below = file.relative_to(place).as_posix()
            if file.is_file() and not any(part in f"{below}/" for part in LEFT_OUT):
                yield file, below


def main(autograder: Path) -> int:
    """Grade `autograder/submission` and write `autograder/results/results.json`, or nothing if the grader fails."""
    with tempfile.TemporaryDirectory() as folder, load_and_start(autograder / "source") as (suite, sandbox):
        from whichline_grader.grading.batch import grade  # imports torch

        done = grade(suite, sandbox, [autograder / "submission"], Path(folder))
        if not (faults := [*done.faults.values(), *done.unreported.values()]):
            shutil.copyfile(Path(folder, "submission", "results.json"), autograder / "results" / "results.json")
            if (answers := Path(folder, ANSWERS)).exists():
                shutil.copytree(answers, autograder / "results" / ANSWERS, dirs_exist_ok=True)
    print("\n".join(faults), file=sys.stderr)
    return len(faults)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
