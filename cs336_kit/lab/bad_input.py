"""Reject what cannot be used in one line, before any work is done for it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click


class BadInput(click.ClickException):
    """One line that says what came and what to do; the exit status is 2, as for a wrong option."""

    exit_code = 2


def check_output(path: Path, suffixes: Sequence[str]) -> None:
    """Raise BadInput unless `path` ends in one of `suffixes`, in any case, and lies in a folder that exists."""
    if path.suffix.lower() not in suffixes:
        raise BadInput(f"expected a file that ends in {' or '.join(suffixes)}, got {path}")
    if not path.parent.is_dir():
        raise BadInput(f"there is no folder {path.parent}; make it, or name another file than {path}")
    if path.is_dir():
        raise BadInput(f"{path} is a folder; name a file")


@contextmanager
def reject_unusable(path: Path, use: str, advice: str = "") -> Iterator[None]:
    """Raise BadInput in place of the OSError of the use of `path`, which is "read" or "write"."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"cannot {use} {path}: {error.strerror or error}{advice}") from None


reject_unreadable = partial(reject_unusable, use="read")
reject_unwritable = partial(reject_unusable, use="write", advice="; name another file")
