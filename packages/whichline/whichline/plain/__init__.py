"""Any pytest suite: which line is wrong, for whoever has tests and a reference with functions of the same names.

The table `[tool.whichline]` of a pyproject.toml says what is looked into, and what it is held against.
"""

from dataclasses import dataclass
from pathlib import Path

NAME = "[tool.whichline]"


class TableError(Exception):
    """The table cannot be used; the message says why and what to write."""


@dataclass(frozen=True)
class Table:
    """What a suite is about.

    Args:
        code: the packages and modules to look into. A module named `adapters` only leads to the others.
        reference: the package or module with functions of the same names.
        root: the folder of the pyproject.toml.
    """

    code: tuple[str, ...]
    reference: str
    root: Path


def read_table(root: Path) -> Table | None:
    """Read the table; None if there is none.

    Raises:
        TableError: it cannot be used.
    """
    path = root / "pyproject.toml"
    if not path.is_file() or "tool.whichline" not in (text := path.read_text(encoding="utf-8")):
        return None
    import tomllib  # not in a suite without the table

    written = tomllib.loads(text).get("tool", {}).get("whichline")
    if written is None:
        return None
    if unknown := [key for key in written if key not in ("code", "reference")]:
        raise TableError(f"pyproject.toml: {NAME} has no key {unknown[0]}: it has code and reference")
    code, reference = written.get("code"), written.get("reference")
    if not isinstance(code, list) or not code or not all(isinstance(each, str) for each in code):
        raise TableError(f'pyproject.toml: {NAME} needs code = ["PACKAGE", ...], the code to look into')
    if not isinstance(reference, str):
        raise TableError(f'pyproject.toml: {NAME} needs reference = "PACKAGE", with functions of the same names')
    return Table(tuple(code), reference, root)
