"""The list of commands is written by hand, so that `--help` need not import them: it must be what there is."""

import subprocess
import sys

import click
import pytest

from cs336_kit.cli import Commands, cs336
from cs336_staff.cli import staff


@pytest.mark.parametrize("group", [cs336, staff], ids=["cs336", "staff"])
def test_every_command_that_is_listed_can_be_imported(group: Commands) -> None:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert isinstance(command, click.Command)
        assert command.name == name
        assert command.help


def test_a_grading_starts_its_sandbox_before_it_imports_torch() -> None:
    code = "import sys, cs336_staff.grading.commands; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_command_that_does_not_exist() -> None:
    assert cs336.get_command(click.Context(cs336), "lineal") is None
