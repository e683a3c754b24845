"""Decisions of staff about grades: `decisions.toml` beside the gradebook, a text that people read and edit.

Nothing else records a decision, so it outlives the gradebook. `adjust`, `overrule` and `comment` add to its end.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from cs336_kit.engine.errors import CourseworkError
from cs336_kit.engine.toml_file import Complaint, Signed, located, read_toml
from cs336_staff.grading.atomic import write_atomically
from cs336_staff.sandbox.printable import printable

FILE = "decisions.toml"
DIGITS = 12  # of a SHA-256, which name what was handed in
HEAD = """\
# What staff decided about grades; nothing else records it. Change it as you like, then run `cs336 staff rescore`.
# To take a decision back, delete it. Of two on one problem the later one holds.
# student: as in the column `student` of grades.csv, or the name of a submission
# work:    what was handed in, by the beginning of its SHA-256; without it, whatever the student hands in
# text:    for the student to read
"""


@dataclass(frozen=True, kw_only=True)
class Comment:
    """Something that staff tell a student; it changes no points.

    Args:
        student: the number, or the name of a submission.
        work: the first digits of the SHA-256 of what was handed in; without any, all that the student hands in.
        text: for the student to read.
    """

    student: str
    work: str = ""
    text: str


@dataclass(frozen=True, kw_only=True)
class Overruling(Comment):
    """Right answers in a problem count though they break the rules; the text says why."""

    problem: str


@dataclass(frozen=True, kw_only=True)
class Adjustment(Overruling):
    """Points are added to what the tests of a problem earn, or below 0 taken away; the text says why."""

    points: Signed


@dataclass(frozen=True)
class Decisions:
    """All that staff decided about a class.

    Args:
        adjust, overrule, comment: in the order of the file.
        counts: of a student, the work that counts, whatever its place among the attempts.
    """

    adjust: tuple[Adjustment, ...] = ()
    overrule: tuple[Overruling, ...] = ()
    comment: tuple[Comment, ...] = ()
    counts: dict[str, str] = field(default_factory=dict)

    def about(self, names: Collection[str], content: str) -> "Decisions":
        """Those about this content, of a submission or students of these names."""

        def fits(each: Comment) -> bool:
            return each.student in names and content.startswith(each.work)

        adjust, overrule, comment = filter(fits, self.adjust), filter(fits, self.overrule), filter(fits, self.comment)
        return Decisions(tuple(adjust), tuple(overrule), tuple(comment))


def read_decisions(folder: Path) -> Decisions:
    """The decisions in a folder of results; none if it has no such file.

    Raises:
        AssignmentError: something in the file is not as it should be.
    """
    return read_toml(folder / FILE, Decisions) if (folder / FILE).exists() else Decisions()


def add_decision(folder: Path, table: str, decision: Comment, whose: str) -> None:
    """Write a decision to the end of the file, below the name of its table and a comment that says `whose` it is."""
    if not decision.text.strip():
        raise CourseworkError("expected a text for the student, got nothing")
    path = folder / FILE
    before = path.read_text(encoding="utf-8").rstrip("\n") if path.exists() else HEAD.rstrip("\n")
    lines = [f"[[{table}]]  # {' '.join(printable(whose).split())}"]
    for each in sorted(fields(decision), key=lambda each: each.name == "text"):
        if (value := getattr(decision, each.name)) != "":
            lines.append(f"{each.name} = {f'{value:+}' if each.type is Signed else as_toml(value)}")
    write_atomically(path, "\n".join((before, "", *lines, "")))


def as_toml(text: str) -> str:
    """A text as TOML and JSON have it."""
    return json.dumps(printable(text), ensure_ascii=False)


def check_problems(folder: Path, decisions: Decisions, problems: Iterable[str]) -> None:
    """Raise AssignmentError if a decision is about another problem than these."""
    for table, number, each in _each(decisions):
        if isinstance(each, Overruling) and each.problem not in problems:
            what = f"is {each.problem!r}, expected one of {', '.join(problems)}"
            raise located(folder / FILE, Complaint((table, number, "problem"), what))


def find_unused(folder: Path, decisions: Decisions, known: Mapping[str, Collection[str]]) -> Iterator[str]:
    """Say of each decision that is about nothing that was graded where it stands.

    Args:
        folder: of the results.
        decisions: what it has.
        known: by names of students and submissions, the contents that they handed in.
    """
    about = [((table, number), each.student, each.work) for table, number, each in _each(decisions)]
    about += [(("counts", student), student, work) for student, work in decisions.counts.items()]
    for key, student, work in about:
        if not any(content.startswith(work) for content in known.get(student, ())):
            what = f"is about {' of '.join(filter(None, (work, student)))}"
            yield str(located(folder / FILE, Complaint(key, what)))


def _each(decisions: Decisions) -> Iterator[tuple[str, int, Comment]]:
    for table in ("adjust", "overrule", "comment"):
        for number, each in enumerate(getattr(decisions, table)):
            yield table, number, each
