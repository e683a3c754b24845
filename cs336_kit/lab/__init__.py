"""The lab: looking at attention as the student's code computes it; for notebooks, `cs336_kit.lab.notebook`."""

import click


class BadInput(click.ClickException):
    """One line that says what came and what to do; the exit status is 2, as for a wrong option."""

    exit_code = 2
