"""Grade onto disks that are too small, then onto the same when they have grown: `full_disk.py FOLDER`, as root.

It prints a line for each disk: its size, how the batch ended, and how many submissions the gradebook had then.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from cs336_staff.grading.batch import grade
from cs336_staff.grading.gradebook import GradebookError
from cs336_staff.grading.suite import GradedSuite, load_graded_suite
from cs336_staff.sandbox import confinement as sandbox
from cs336_staff.tests.attacks.attack import ROOT
from cs336_staff.tests.attacks.grade import TESTS, only
from cs336_staff.tests.grading.test_interruptions import read_gradings

HONEST = ROOT / "cs336_staff" / "tests" / "attacks" / "honest.py"
SUBMISSIONS = 6
SIZES = range(80, 201, 40)  # KiB: from no room for the gradebook to room for everything


def mount(disk: Path, *options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", disk], check=True)


def try_disk(suite: GradedSuite, box: sandbox.Sandbox, paths: list[Path], disk: Path, size: int) -> None:
    disk.mkdir()
    mount(disk, f"size={size}k")
    try:
        try:
            grade(suite, box, paths, disk, jobs=2)
            ended = "complete"
        except (OSError, GradebookError) as error:
            ended = type(error).__name__
        before = read_gradings(disk)
        mount(disk, "remount", "size=64m")
        done = grade(suite, box, paths, disk, jobs=2)
        assert (done.done, done.already, done.faults) == (SUBMISSIONS, len(before), [])
        after = read_gradings(disk)
        assert before.items() <= after.items()
        assert len(after) == SUBMISSIONS
        for name in after:
            report = json.loads((disk / name / "results.json").read_text())
            assert sum(len(test["extra_data"]["outcomes"]) for test in report["tests"]) == len(TESTS)
        print(size, ended, len(before))
    finally:
        subprocess.run(["umount", disk], check=True)


def main(folder: Path) -> None:
    os.chdir(folder)
    paths = [folder / f"submission-{i}.py" for i in range(SUBMISSIONS)]
    for path in paths:
        shutil.copyfile(HONEST, path)

    suite = only(load_graded_suite(ROOT), TESTS)
    with sandbox.start() as box:
        for size in SIZES:
            try_disk(suite, box, paths, folder / f"disk-{size}", size)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
