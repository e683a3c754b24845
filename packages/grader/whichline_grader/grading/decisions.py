"""`decisions.toml`: what staff decided about grades, a text that people read and edit.

Nothing else records a decision, so it outlives the gradebook, beside which it lies. `adjust` adds to its end.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path

from whichline.engine.errors import CourseworkError
from whichline.engine.toml_file import Key, Signed
from whichline_grader.grading.writing import write_atomically, writing
from whichline_grader.sandbox.printable import printable

FILE = "decisions.toml"
DIGITS = 12  # of a SHA-256, which name what was handed in
HEAD = """\
# What staff decided about grades; nothing else records it. Change it as you like, then run `staff rescore`.
# To take a decision back, delete it. Of two on one problem the later one holds.
# student: as in the column `student` of grades.csv, or the name of a submission
# work:    what was handed in, by the beginning of its SHA-256; without it, whatever the student hands in
# text:    for the student to read
"""


@dataclass(frozen=True, kw_only=True)
class Comment:
    """Something that staff tell a student; it changes no points."""

    student: str  # the number, or the name of a submission
    work: str = ""  # the first digits of the SHA-256 of what was handed in; without any, all that the student hands in
    text: str  # for the student to read


@dataclass(frozen=True, kw_only=True)
class Waiver(Comment):
    """Right answers in a problem count though they break the rules; the text says why."""

    problem: str


@dataclass(frozen=True, kw_only=True)
class Adjustment(Waiver):
    """Points are added to what the tests of a problem earn, or below 0 taken away; the text says why."""

    points: Signed


TABLES = {Adjustment: "adjust", Waiver: "waive", Comment: "comment"}


@dataclass(frozen=True)
class Decisions:
    """All that staff decided about a class."""

    adjust: tuple[Adjustment, ...] = ()  # in the order of the file
    waive: tuple[Waiver, ...] = ()
    comment: tuple[Comment, ...] = ()
    counts: dict[str, str] = field(default_factory=dict)  # of a student, the work that counts among the attempts

    def each(self) -> Iterator[tuple[Key, Comment]]:
        """Give each of them with its key in the file."""
        for table in TABLES.values():
            for number, each in enumerate(getattr(self, table)):
                yield (table, number), each


def as_toml(text: str) -> str:
    """A text as TOML and JSON have it."""
    return json.dumps(printable(text), ensure_ascii=False)


def write_decision(path: Path, decision: Comment, whose: str) -> None:
    """Write down what staff decided: at the end of the file, below a comment that says `whose` it is."""
    if not decision.text.strip():
        raise CourseworkError("expected a text for the student, got nothing")
    lines = [f"[[{TABLES[type(decision)]}]]  # {' '.join(printable(whose).split())}"]
    for each in sorted(fields(decision), key=lambda each: each.name == "text"):
        if (value := getattr(decision, each.name)) != "":
            lines.append(f"{each.name} = {f'{value:+}' if each.type is Signed else as_toml(value)}")
    with writing(path.parent):
        before = path.read_text(encoding="utf-8") if path.exists() else HEAD
        write_atomically(path, "\n".join((before.rstrip("\n"), "", *lines, "")))
