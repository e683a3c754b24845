"""The error that every command prints as a line."""


class CourseworkError(Exception):
    """A file, a suite or a machine cannot be used; the message says what happened, where, and what to do.

    The command prints it without a traceback, and ends with status 1.
    """
