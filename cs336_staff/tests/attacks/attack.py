"""What the suite knows about an attack: its docstring says it.

The first paragraph says what it tries; then come `key: value` lines:

    plain    what becomes of a plain in-process run, an `Outcome` of `plain.py`
    report   a text that the feedback to the student has
    earns    the test function whose points it earns honestly, if there is one
    machine  the processor that it is written for, if it is for one
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cs336_staff.grading.identity import safe_name
from cs336_staff.tests import ROOT
from cs336_staff.tests.attacks import made

SUBMISSIONS = Path(__file__).parent / "submissions"


@dataclass(frozen=True)
class Attack:
    """A submission that tries what it should not, and where it lies."""

    path: Path
    tries: str
    plain: str
    report: str
    earns: str = ""
    machine: str = ""

    @property
    def name(self) -> str:
        """The name of its report."""
        return safe_name(self.path.name)

    @property
    def neighbour(self) -> str:
        """The name of the honest submission that is graded after it."""
        return f"after-{Path(self.name).stem[:80]}.py"


def find_attacks(folder: Path) -> Iterator[Attack]:
    """Every attack; those that are not a single file are made in `folder`."""
    files = ((path, ast.get_docstring(ast.parse(path.read_text())) or "") for path in SUBMISSIONS.rglob("*.py"))
    for path, text in [*sorted(files), *made.make(folder, ROOT)]:
        tries, _, _ = text.partition("\n\n")
        fields = dict(re.findall(r"^\s*(plain|report|earns|machine): (.*)$", text, re.MULTILINE))
        yield Attack(path, tries, **fields)
