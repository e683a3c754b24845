"""`python -m cs336_kit` is the `cs336` command."""

from cs336_kit.cli import cs336

cs336(prog_name="cs336")
