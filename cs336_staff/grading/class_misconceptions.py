"""How many submissions of a class made each known mistake."""

import csv
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.table import Table

from cs336_kit.engine.failure import MOST_MISTAKES
from cs336_kit.examination.diagnosis import Mistake
from cs336_staff.grading.exports import Grade
from cs336_staff.grading.gradebook import Grading

FILE_NAME = "misconceptions.csv"


def count_mistakes(found: Iterable[Grade]) -> Counter[str]:
    """The number of submissions whose student read of each mistake, by its id; one of a group counts once.

    Where the tests leave two or three mistakes, the student reads of each, and each counts.
    """
    gradings = {grade.grading.submission: grade.grading for grade in found}
    return Counter(id for grading in gradings.values() for id in _read_of(grading))


def write_mistakes(path: Path, counts: Counter[str], known: Mapping[str, Mistake]) -> None:
    """One row for each mistake that was made, the commonest first."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["submissions", "misconception", "section", "name"])
        for id, number in counts.most_common():
            mistake = known.get(id)
            writer.writerow([number, id, *((mistake.section, mistake.name) if mistake else ("", ""))])


def mistakes_table(counts: Counter[str], known: Mapping[str, Mistake], most: int | None = None) -> Table:
    """The same for the terminal, the `most` commonest."""
    table = Table("Submissions", "Misconception", title="Misconceptions, the commonest first")
    table.columns[0].justify = "right"
    for id, number in counts.most_common(most):
        # One that an older gradebook names may have gone.
        table.add_row(str(number), known[id].name if id in known else id)
    return table


def _read_of(grading: Grading) -> set[str]:
    named = grading.about.get("named", {}).values()
    return {id for each in named if len(each["ids"]) <= MOST_MISTAKES for id in each["ids"]}
