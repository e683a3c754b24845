"""A file that is there whole or not at all."""

import os
from pathlib import Path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file that is there whole or not at all."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(content if isinstance(content, bytes) else content.encode())
    os.replace(beside, path)
