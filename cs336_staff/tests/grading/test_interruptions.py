"""Batches that are killed at random moments lose nothing and grade nothing twice."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.soak
def test_killed_batches_go_on_where_they_were():
    command = [sys.executable, "-m", "cs336_staff.tools.benchmarks.interruptions", "--batches=3", "--submissions=12"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1800)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert finished.stdout.count("12 of 12 graded once: as if undisturbed") == 3
