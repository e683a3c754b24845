"""Counts of the submissions of a class that have each finding of the examinations."""

import csv
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from rich.table import Table

from cs336_staff.grading.exports import Grade

FILE_NAME = "findings.csv"

# How many submissions have a finding, and what the first of them reads.
Count = tuple[str, str, int, str]


def count_findings(found: Iterable[Grade]) -> list[Count]:
    """Problem, id, number of submissions and first line of each finding, the commonest first; a group counts once."""
    gradings = {grade.grading.submission: grade.grading for grade in found}
    told = [explanation for grading in gradings.values() for explanation in grading.notes.explanations]
    first = {(explanation.problem, explanation.id): explanation.lines[0] for explanation in reversed(told)}
    counts = Counter((explanation.problem, explanation.id) for explanation in told)
    return [(problem, id, number, first[problem, id]) for (problem, id), number in counts.most_common()]


def write_findings(path: Path, counts: Iterable[Count]) -> None:
    """One row for each finding."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["submissions", "problem", "finding", "first"])
        writer.writerows([number, problem, id, line] for problem, id, number, line in counts)


def findings_table(counts: Iterable[Count]) -> Table:
    """The same for the terminal."""
    table = Table("Submissions", "Problem", "Finding", title="What the examinations found, the commonest first")
    table.columns[0].justify = "right"
    for problem, id, number, _ in counts:
        table.add_row(str(number), problem, id)
    return table
