"""Whether the suite is good enough to ship: right implementations pass, and every known mistake is caught and named."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cs336_staff.correct import ALSO_CORRECT, CORRECT
from cs336_staff.misconceptions import CATALOGUE
from cs336_staff.rehearsal import Rehearsal, rehearse


@dataclass(frozen=True)
class Finding:
    """What the public suite says of one implementation.

    Args:
        name: the style of a right implementation, or the id of a misconception.
        failed: how many tests failed.
        complaint: what is wrong with that, or "".
        named: the misconceptions that a student would read of.
    """

    name: str
    failed: int
    complaint: str
    named: tuple[str, ...] = ()


def verify_correct(root: Path) -> Iterator[Finding]:
    """Each style of right implementation must pass every test."""
    for style, adapters in {**CORRECT, **ALSO_CORRECT}.items():
        rehearsal = rehearse(root, adapters)
        yield Finding(style, len(rehearsal.failures), "is right and fails" if rehearsal.failures else "")


def verify_misconceptions(root: Path) -> Iterator[Finding]:
    """Each misconception must fail some test, and the student must read its name and no other."""
    for entry in CATALOGUE.values():
        rehearsal = rehearse(root, {**CORRECT["einsum"], **entry.adapters})
        named = tuple(sorted(rehearsal.named))
        yield Finding(entry.id, len(rehearsal.failures), _complaint(entry.id, rehearsal), named)


def _complaint(id: str, rehearsal: Rehearsal) -> str:
    if not rehearsal.failures:
        return "is not caught"
    if id not in rehearsal.named:
        return "is not named"
    return "has other names too" if rehearsal.named != {id} else ""
