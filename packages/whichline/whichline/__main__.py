"""`python -m whichline` is the command of the assignment in this folder."""

from contextlib import suppress

from whichline.cli import main
from whichline.engine.assignment import get_assignment
from whichline.engine.toml_file import AssignmentError

name = None
with suppress(AssignmentError):  # the command reports it
    name = get_assignment().command
main(prog_name=name)
