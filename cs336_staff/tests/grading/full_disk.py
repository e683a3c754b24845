"""Grade onto disks that are too small, then onto the same when they have grown: `full_disk.py FOLDER`, as root.

It prints a line for each disk: its size, how the batch ended, and how many submissions the gradebook had then.
"""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from cs336_staff.grading.batch import grade
from cs336_staff.grading.gradebook import Gradebook, GradebookError
from cs336_staff.grading.suite import GradedSuite, load_graded_suite
from cs336_staff.sandbox import confinement as sandbox
from cs336_staff.tests.attacks.attack import ROOT
from cs336_staff.tests.attacks.grade import TESTS, only

HONEST = ROOT / "cs336_staff" / "tests" / "attacks" / "honest.py"
SUBMISSIONS = 6
SIZES = range(40, 281, 40)  # KiB: from no room for the gradebook to room for nearly everything


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
        before = look_at(disk)
        mount(disk, "remount", "size=64m")
        done = grade(suite, box, paths, disk, jobs=2)
        assert (done.done, done.already, done.faults) == (SUBMISSIONS, len(before), [])
        after = look_at(disk)
        assert before.items() <= after.items()
        assert len(after) == SUBMISSIONS
        for name in after:
            report = json.loads((disk / name / "results.json").read_text())
            assert sum(len(test["extra_data"]["outcomes"]) for test in report["tests"]) == len(TESTS)
        print(size, ended, len(before))
    finally:
        subprocess.run(["umount", disk], check=True)


def look_at(disk: Path) -> dict[str, tuple[str, int]]:
    """When each submission was graded, and how many results it has."""
    if not (disk / "gradebook.sqlite").exists():
        return {}
    with closing(sqlite3.connect(disk / "gradebook.sqlite")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if not connection.execute("PRAGMA user_version").fetchone()[0]:
            return {}
    with Gradebook(disk / "gradebook.sqlite") as gradebook:
        return {each.submission: (each.started.isoformat(), len(each.results)) for each in gradebook.latest()}


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
