"""Commands of staff, in this process."""

from click.testing import CliRunner

from whichline_grader.cli import staff


def succeed(*arguments: object) -> str:
    """Run a command of `cs336 staff` that succeeds, and return what it prints."""
    finished = CliRunner().invoke(staff, [*map(str, arguments)])
    assert finished.exit_code == 0, finished.output
    return finished.output
