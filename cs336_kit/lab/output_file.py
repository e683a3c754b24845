"""Refusing a name for an output file before any work is done for it."""

from collections.abc import Sequence
from pathlib import Path

from cs336_kit.lab.bad_input import BadInput


def check_output(path: Path, suffixes: Sequence[str]) -> None:
    """Raise BadInput unless `path` ends in one of `suffixes` and lies in a folder that exists."""
    if path.suffix not in suffixes:
        raise BadInput(f"expected a file that ends in {' or '.join(suffixes)}, got {path}")
    if not path.parent.is_dir():
        raise BadInput(f"there is no folder {path.parent}; make it, or name another file than {path}")
    if path.is_dir():
        raise BadInput(f"{path} is a folder; name a file")
