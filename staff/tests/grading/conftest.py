"""Commands of staff, in this process or in another."""

import os
from pathlib import Path

from click.testing import CliRunner

from staff.tools.forked import run_forked
from whichline_grader.cli import staff


def succeed(*arguments: object) -> str:
    """Run a command of `cs336 staff` that succeeds, and return what it prints."""
    finished = CliRunner().invoke(staff, [*map(str, arguments)])
    assert finished.exit_code == 0, finished.output
    return finished.output


def run_staff(course: Path, *arguments: object) -> str:
    """Run such a command in the folder of a course, in a process of its own."""
    finished = run_forked(("whichline", "staff", *map(str, arguments)), course, os.environ)
    printed = (finished.stdout + finished.stderr).decode()
    assert finished.returncode == 0, printed
    return printed
