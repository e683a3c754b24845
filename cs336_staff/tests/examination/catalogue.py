"""What the examination should find in the entries of the catalogue, and in right implementations nothing."""

import tomllib
from pathlib import Path

from cs336_staff.authoring import misconceptions
from cs336_staff.authoring.right_styles import RIGHT_STYLES

TABLE = Path(misconceptions.__file__).parents[1] / "expected_findings.toml"
RIGHT = RIGHT_STYLES


def expected_findings(problem: str) -> dict[str, list[str]]:
    """The ids of the findings, by the id of the entry."""
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))[problem]


def ids_of(problem: str) -> set[str]:
    """The entries of a problem."""
    return {id for id, entry in misconceptions.CATALOGUE.items() if entry.problem == problem}
