"""Whether the suites are good enough to ship: right implementations pass, every known mistake is caught and named."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from cs336_staff.authoring.misconceptions import CATALOGUE
from cs336_staff.authoring.misconceptions.parts import Adapter
from cs336_staff.authoring.rehearsal import HIDDEN, PUBLIC, Rehearsal, Rehearse, with_collected
from cs336_staff.authoring.right_styles import ALSO_CORRECT, CORRECT

STYLES = {**CORRECT, **ALSO_CORRECT}


@dataclass(frozen=True)
class Finding:
    """What the suites say of one misconception.

    Args:
        id: the misconception.
        failed: how many cases of each public test failed.
        named: the misconceptions that a student would read of.
        hidden: whether the hidden suite catches it too.
        complaint: what is wrong with that, or "".
    """

    id: str
    failed: Mapping[str, int]
    named: set[str]
    hidden: bool
    complaint: str


def verify_correct(root: Path) -> list[str]:
    """Each style of right implementation must pass every test; what is wrong with that, one line each."""

    def complaints(rehearse: Rehearse) -> list[str]:
        return [f"{style} is right and fails {test}" for style in STYLES for test in rehearse(STYLES[style]).failed]

    return [line for suite in (PUBLIC, HIDDEN) for line in with_collected(root, complaints, (suite,))]


def verify_misconceptions(root: Path) -> list[Finding]:
    """Each misconception must fail some test of either suite, and the student must read its name and no other."""

    def caught(rehearse: Rehearse) -> set[str]:
        return {id for id in CATALOGUE if rehearse(submission(id), until_first_failure=True).failed}

    hidden = with_collected(root, caught, (HIDDEN,))
    return with_collected(root, lambda rehearse: [_finding(id, rehearse(submission(id)), hidden) for id in CATALOGUE])


def submission(id: str) -> Mapping[str, Adapter]:
    """Adapters that have this misconception and are right otherwise."""
    return {**CORRECT["einsum"], **CATALOGUE[id].adapters}


def coverage_table(findings: Sequence[Finding], tests: Sequence[str]) -> Table:
    """Misconception by public test: how many of its cases fail."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("misconception", no_wrap=True)
    for number, _ in enumerate(tests, start=1):
        table.add_column(str(number), justify="right")
    table.add_column("hidden")
    table.add_column("named")
    for finding in findings:
        failed = (str(finding.failed.get(test, "·")) for test in tests)
        hidden = "caught" if finding.hidden else "NO"
        table.add_row(finding.id, *failed, hidden, "yes" if finding.named == {finding.id} else finding.complaint)
    return table


def _finding(id: str, rehearsal: Rehearsal, hidden: Container[str]) -> Finding:
    failed = Counter(test.rpartition("::")[2].partition("[")[0] for test in rehearsal.failed)
    return Finding(id, failed, rehearsal.named, id in hidden, _complaint(id, rehearsal, id in hidden))


def _complaint(id: str, rehearsal: Rehearsal, hidden: bool) -> str:
    if not rehearsal.failed:
        return "is not caught"
    if id not in rehearsal.named:
        return "is not named"
    if rehearsal.named != {id}:
        return f"is also named {', '.join(sorted(rehearsal.named - {id}))}"
    return "" if hidden else "is not caught by the hidden suite"
