"""Plain suites: any pytest suite, with a reference that has functions of the same names.

The table `[tool.whichline]` of a pyproject.toml names the code to search, and the reference.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

NAME = "[tool.whichline]"


class TableError(Exception):
    """The table cannot be used; the message says why and what to write."""


@dataclass(frozen=True)
class Names:
    """The things that have another name in the reference: functions, classes, methods, parameters."""

    table: Mapping[str, str] = field(default_factory=dict)  # the code's names, or parts of them, and the reference's

    def rename(self, name: str) -> str:
        """Return the reference's name for one of the code's, which may be dotted."""
        return self.table.get(name) or ".".join(self.table.get(part, part) for part in name.split("."))


@dataclass(frozen=True)
class Table:
    """The table `[tool.whichline]`."""

    code: tuple[str, ...]  # the packages and modules to search; a module named `adapters` only connects to the others
    reference: str  # the package or module with functions of the same names
    root: Path  # the folder of the pyproject.toml
    names: Names = field(default_factory=Names)  # what has another name in the reference


def read_table(root: Path) -> Table | None:
    """Read the table; None if there is none, TableError if it cannot be used."""
    path = root / "pyproject.toml"
    if not path.is_file() or "tool.whichline" not in (text := path.read_text(encoding="utf-8")):
        return None
    import tomllib  # not in a suite without the table

    written = tomllib.loads(text).get("tool", {}).get("whichline")
    if written is None:
        return None
    if unknown := [key for key in written if key not in ("code", "reference", "names")]:
        raise TableError(f"pyproject.toml: {NAME} has no key {unknown[0]}: it has code, reference and names")
    code, reference = written.get("code"), written.get("reference")
    if not isinstance(code, list) or not code or not all(isinstance(each, str) for each in code):
        raise TableError(f'pyproject.toml: {NAME} needs code = ["PACKAGE", ...], the code to look into')
    if not isinstance(reference, str):
        raise TableError(f'pyproject.toml: {NAME} needs reference = "PACKAGE", with functions of the same names')
    names = written.get("names", {})
    if not isinstance(names, dict) or not all(isinstance(each, str) for each in names.values()):
        raise TableError(f'pyproject.toml: {NAME} needs names = {{OURS = "THEIRS", ...}}, names in the code')
    return Table(tuple(code), reference, root, Names(names))
