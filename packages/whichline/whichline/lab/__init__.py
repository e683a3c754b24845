"""The lab: looking into one call of the student's code."""

import click


class BadInput(click.ClickException):
    """One line that says what came and what to do; the exit status is 2, as for a wrong option."""

    exit_code = 2
