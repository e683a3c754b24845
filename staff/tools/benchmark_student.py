"""Seconds that a student waits: the tests beside the import of torch, and a save beside a fresh pytest.

    python -m staff.tools.benchmark_student

All take turns in one run. A save is timed from the write of the file until the terminal shows the verdict; every other
one is wrong.
"""

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import click
import pexpect
import torch

from staff.tools.student import FUNCTIONAL, Student
from staff.tools.terminal import Terminal, watching

PROBLEM = "scaled_dot_product_attention"
RIGHT, WRONG = "math.sqrt(Q.shape[-1])", "Q.shape[-1]"


@click.command()
@click.option("--rounds", default=7, show_default=True)
def benchmark(rounds: int) -> None:
    """Print a table."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as on a student's machine
    machine = f"{os.cpu_count()} cores, {platform.system()}"
    click.echo(f"Python {platform.python_version()}, torch {torch.__version__}, {machine}")
    with tempfile.TemporaryDirectory() as folder:
        student, other = (Student(Path(tempfile.mkdtemp(dir=folder))) for _ in range(2))
        ways = {"import torch": ("-c", "import torch"), "pytest -k": ("-m", "pytest", "-k", f"test_{PROBLEM}")}
        ways |= {"pytest": ("-m", "pytest"), "check": ("-m", "whichline", "check")}
        take_turns({name: lambda way=way: run(student, *way) for name, way in ways.items()}, rounds)
        with watching(student, PROBLEM) as one, watching(other) as board:
            saves = {"pytest -k": lambda: run(student, *ways["pytest -k"])}
            saves["save, one problem"] = lambda: time_saves(student, one)
            saves["save, whole board"] = lambda: time_saves(other, board)
            take_turns(saves, 2 * rounds)


def take_turns(ways: Mapping[str, Callable[[], float]], rounds: int) -> None:
    """Print the median seconds of each way, the worst, and the median ratio to the first way in the same round."""
    for way in ways.values():
        way()  # Python's bytecode is written, and files are in memory
    seconds = [[way() for way in ways.values()] for _ in range(rounds)]
    click.echo(f"\n{'':<20} {'median':>8} {'worst':>8} {'ratio to ' + next(iter(ways)):>24}")
    to_first = zip(*([x / row[0] for x in row] for row in seconds), strict=True)
    for name, each, ratios in zip(ways, zip(*seconds, strict=True), to_first, strict=True):
        click.echo(f"{name:<20} {statistics.median(each):6.2f} s {max(each):6.2f} s {statistics.median(ratios):24.2f}")


def run(student: Student, *command: str) -> float:
    """Seconds of a command that succeeds."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *command], cwd=student.folder, check=True, capture_output=True)
    return time.perf_counter() - start


def time_saves(student: Student, terminal: Terminal) -> float:
    """Seconds from a save to its verdict on this terminal: the mean of a mistake and of its correction."""
    taken = 0.0
    for old, new, state in ((RIGHT, WRONG, "failing"), (WRONG, RIGHT, "passed")):
        time.sleep(1)  # what follows a verdict has ended
        while terminal.expect([r"(?s).+", pexpect.TIMEOUT], timeout=0) == 0:
            pass
        start = time.perf_counter()
        student.replace(FUNCTIONAL, old, new)
        terminal.expect(rf"{PROBLEM} +{state}")
        taken += time.perf_counter() - start
    return taken / 2


if __name__ == "__main__":
    benchmark()
