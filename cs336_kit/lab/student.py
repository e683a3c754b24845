"""The student's attention, called through their `adapters.py`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import click

from cs336_kit.failure import describe


class Student:
    """What a student wrote, imported from the folder of the assignment.

    Args:
        root: that folder.

    Attributes:
        adapters: the module. What it raises is the student's to mend: call its functions within `in_words()`.

    Raises:
        click.ClickException: `adapters.py` cannot be imported, in the words that a failing test has for it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        sys.path.insert(0, str(root))  # `adapters.py` imports `cs336_basics` from beside it
        spec = spec_from_file_location("adapters", root / "adapters.py")
        assert spec is not None
        assert spec.loader is not None
        self.adapters = module_from_spec(spec)
        with self.in_words():
            spec.loader.exec_module(self.adapters)

    @contextmanager
    def in_words(self) -> Iterator[None]:
        """Turn an error of the student's code into a click.ClickException."""
        try:
            yield
        except click.ClickException:
            raise
        except (Exception, SystemExit) as error:
            failure = describe(error, None, None, self._root, ("adapters.py", 1))
            raise click.ClickException("\n".join((failure.headline, *failure.details))) from None
