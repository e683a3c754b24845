"""`cs336 staff similar`: pairs of submissions that resemble each other."""

import sys
from collections import Counter
from itertools import chain
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cs336_kit.engine.assignment import is_students
from cs336_staff.grading.course import Course, find_checked_root, load_course
from cs336_staff.grading.exports import RosterError, read_groups
from cs336_staff.grading.identity import handed_in, together, with_groups
from cs336_staff.grading.report import safe_name
from cs336_staff.release.handout import HandoutError, cut_solution
from cs336_staff.sandbox.printable import printable
from cs336_staff.sandbox.submission import Refused, take_in
from cs336_staff.similarity.fingerprints import fingerprints, fingerprints_apart
from cs336_staff.similarity.page import page
from cs336_staff.similarity.pairs import Work, find_pairs

PRINTED, SHOWN = 10, 40  # pairs, on the terminal and on the page
NAMED = 3  # files in a remark
PAGE = "similar.html"


@click.command()
@click.argument("submission", nargs=-1, required=True, type=click.Path(exists=True, readable=False, path_type=Path))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("results"), show_default=True)
def similar(submission: tuple[Path, ...], out: Path) -> None:
    """Compare each SUBMISSION with all others, and write the pairs that are most alike to similar.html, to look at.

    Nothing is run, and no grade depends on it. Attempts of one student and of members of one group are not compared.
    Give it the submissions of other years as well, or a solution from the web, and it compares with those.
    """
    root = find_checked_root()
    try:
        works, remarks = _works(root, submission, load_course(root))
        if len(works) < 2:
            raise click.ClickException("expected at least two submissions that can be compared")
        pairs, typical = find_pairs(works, SHOWN)
        out.mkdir(parents=True, exist_ok=True)
        written = page(pairs, count=len(works), typical=typical, remarks=remarks)
        (out / PAGE).write_text(written, encoding="utf-8")
    except (HandoutError, RosterError, OSError) as error:
        raise click.ClickException(str(error)) from None
    console = Console()
    for remark in remarks:
        console.print(Text(f"Not compared: {printable(remark)}", "yellow"))
    table = Table("Similar", "Submission", "Submission", title="The most alike, by what few others have")
    for pair in pairs[:PRINTED]:
        table.add_row(f"{pair.similarity:.0%}", Text(printable(pair.one.name)), Text(printable(pair.other.name)))
    console.print(table if pairs else "No two submissions share anything that is not given or common to all.")
    console.print(Text(f"Half of the submissions resemble no other by more than {typical:.0%}."))
    console.print(Text(f"Resemblance is not proof. Both sources, side by side: {out / PAGE}"))


def _works(root: Path, paths: tuple[Path, ...], course: Course) -> tuple[list[Work], list[str]]:
    """Take in the submissions, and return those that can be compared, with remarks on what cannot."""
    groups = read_groups(Path(course.groups)) if course.groups else {}
    given = _given(root)
    files = together(dict.fromkeys(path.resolve() for path in paths))
    count = Counter(safe_name(path.name) for path in files)
    works: list[Work] = []
    remarks: list[str] = []
    with click.progressbar(files, label="Submissions", file=sys.stderr) as bar:
        for path in bar:
            name = safe_name(path.name)
            name = name if count[name] == 1 else str(path)
            try:
                handed, taken = with_groups(handed_in(path, name), groups), take_in(path, files[path])
            except (Refused, OSError) as reason:
                remarks.append(f"{name}: {reason}")
                continue
            own = {file: source for file, source in taken.files.items() if not _ships(root, file)}
            found, unread = fingerprints_apart(own)
            if unread:
                more = f" and {len(unread) - NAMED} more" if len(unread) > NAMED else ""
                remarks.append(f"{name}: {', '.join(unread[:NAMED])}{more}, not Python or too large")
            theirs = {file: [each for each in prints if each.hash not in given] for file, prints in found.items()}
            works.append(Work(name, frozenset(student.key for student in handed.students), own, theirs))
    return works, remarks


def _given(root: Path) -> set[int]:
    """Compute the fingerprints of what every student has: their own files without the solutions, and the lab's code."""
    folders = (root / "cs336_basics", root / "cs336_kit" / "lab")
    files = [root / "adapters.py", *chain.from_iterable(folder.rglob("*.py") for folder in folders)]
    given = [cut_solution(str(file), file.read_text(encoding="utf-8"))[0] for file in files]
    return {each.hash for source in given for each in fingerprints(source.encode(), window=1)}


def _ships(root: Path, file: str) -> bool:
    """Tell whether it is a file of the handout in which students write nothing."""
    return not is_students(Path(file)) and (root / file).is_file()
