"""The time from a save to its verdict in `cs336 check --watch`, beside a fresh pytest of one problem.

    uv run python -m cs336_staff.tools.benchmark_watch

The clock runs from the write of the file until the new board stands in the terminal; every other save is wrong.
"""

import os
import platform
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import torch

from cs336_staff.tools.student import ROOT, Student
from cs336_staff.tools.terminal import ENDED, watching

SAVES = 20
FRESH_RUNS = 5
PROBLEM = "scaled_dot_product_attention"
FILE = "cs336_basics/nn/functional.py"
RIGHT, WRONG = "math.sqrt(Q.shape[-1])", "Q.shape[-1]"


def time_saves(student: Student, *arguments: str, pause: float = 0.5) -> list[float]:
    """Seconds from each of the saves to its verdict, with a pause before the next save: a spare has to warm up."""
    seconds = []
    with watching(student, *arguments) as terminal:
        for save in range(SAVES):
            old, new, state = (WRONG, RIGHT, "passed") if save % 2 else (RIGHT, WRONG, "failing")
            student.replace(FILE, old, new)
            start = time.perf_counter()
            terminal.expect(rf"{PROBLEM} +{state}.*{ENDED}")
            seconds.append(time.perf_counter() - start)
            time.sleep(pause)
    return seconds


def time_fresh(student: Student) -> list[float]:
    """Seconds of each fresh pytest; one before them writes Python's bytecode."""
    command = ["uv", "run", "--project", str(ROOT), "pytest", "-q", "-k", f"test_{PROBLEM}"]
    seconds = []
    for _ in range(1 + FRESH_RUNS):
        start = time.perf_counter()
        subprocess.run(command, cwd=student.folder, check=True, capture_output=True)
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def main() -> None:
    """Print the table."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        student = Student(Path(folder))
        rows = {
            f"uv run pytest -k test_{PROBLEM}": time_fresh(student),
            f"cs336 check --watch {PROBLEM}": time_saves(student, PROBLEM),
            "cs336 check --watch": time_saves(student),
            "cs336 check --watch --spare": time_saves(student, "--spare", pause=8),
        }
    fresh = statistics.median(next(iter(rows.values())))
    print(f"Python {platform.python_version()}, torch {torch.__version__}, {os.cpu_count()} cores, {platform.system()}")
    print(f"{'':<52} {'times':>5} {'median':>8} {'worst':>8} {'quicker':>8}")
    for name, seconds in rows.items():
        median = statistics.median(seconds)
        print(f"{name:<52} {len(seconds):>5} {median:>6.3f} s {max(seconds):>6.3f} s {fresh / median:>7.1f}×")


if __name__ == "__main__":
    main()
