"""Commands of staff, in this process or in another."""

import os
from pathlib import Path

from click.testing import CliRunner, Result

from staff.tools.forked import run_forked
from whichline_grader.cli import staff


def invoke(*arguments: object) -> Result:
    """Run a command of `cs336 staff`."""
    return CliRunner().invoke(staff, [*map(str, arguments)])


def succeed(*arguments: object) -> str:
    """Run one that succeeds, and return what it prints."""
    finished = invoke(*arguments)
    assert finished.exit_code == 0, finished.output
    return finished.output


def run_staff(course: Path, *arguments: object) -> str:
    """Run such a command in the folder of a course, in a process of its own."""
    finished = run_forked(("whichline", "staff", *map(str, arguments)), course, os.environ)
    printed = (finished.stdout + finished.stderr).decode()
    assert finished.returncode == 0, printed
    return printed
