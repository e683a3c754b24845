"""The lab: show one call of the student's code line by line."""

import click


class BadInput(click.ClickException):
    """Ends a command with one line that says what was received and what to do; the exit status is 2."""

    exit_code = 2
