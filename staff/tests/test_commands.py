"""The list of commands is written by hand, so that `--help` need not import them: it must be what there is."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from staff.tests import ROOT
from whichline.cli import Commands
from whichline.cli import main as cs336
from whichline_grader.cli import GONE, staff

VERSION = [sys.executable, "-m", "whichline", "--version"]


@pytest.mark.parametrize("group", [cs336, staff], ids=["cs336", "staff"])
def test_every_command_that_is_listed_can_be_imported(group: Commands) -> None:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert isinstance(command, click.Command)
        assert command.name == name
        assert command.help


def test_a_misspelt_command_is_told_which_is_meant() -> None:
    assert CliRunner().invoke(cs336, ["chekc"]).output.endswith("Error: No command is called chekc: is it check?\n")


@pytest.mark.parametrize("name", ["comment", "diff", "feedback", "findings", "fixtures", "overrule"])
def test_a_command_that_is_gone_says_what_takes_its_place(name: str) -> None:
    result = CliRunner().invoke(staff, [name, "x"])
    assert (result.exit_code, result.output.splitlines()[-1]) == (2, f"Error: `{name}` is gone: {GONE[name]}.")
    assert name not in staff.list_commands(click.Context(staff))
    assert len(staff.list_commands(click.Context(staff))) == 11


def test_a_grading_starts_its_sandbox_before_it_imports_torch() -> None:
    code = "import sys, whichline_grader.grading.commands; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_help_begins_with_what_students_need_daily() -> None:
    lines = CliRunner().invoke(cs336, ["--help"]).output.partition("Every day:\n")[2].splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["check", "hint", "debug", "submit"]
    assert lines[5] == "Now and then:"
    assert CliRunner().invoke(staff, ["--help"]).output.count("Commands:\n") == 1


def test_the_version_is_told_outside_of_an_assignment_too(tmp_path: Path) -> None:
    shown = subprocess.run(VERSION, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, f"whichline {version('whichline')}\n", "")


def test_the_version_of_an_assignment_that_is_not_installed(tmp_path: Path) -> None:
    stated = (ROOT / "assignment.toml").read_text().replace("cs336_basics", "cs999_basics")
    (tmp_path / "assignment.toml").write_text(stated)
    shown = subprocess.run(VERSION, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert shown.returncode == 1
    assert shown.stderr.startswith("Error: the package cs999_basics is not installed: in its folder use `uv run`")


def test_help_without_a_command_that_a_course_has_taken_away() -> None:
    group = Commands(lazy={"hint": ("whichline.checking.commands:hint", "Show a hint.")}, daily=("hint", "debug"))
    shown = CliRunner().invoke(group, ["--help"])
    assert (shown.exit_code, shown.output.count("Show a hint."), "debug" in shown.output) == (0, 1, False)
