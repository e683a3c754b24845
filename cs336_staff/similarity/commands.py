"""`cs336 staff similar`: submissions that are identical, and pairs that resemble each other."""

import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, combinations, product
from pathlib import Path
from typing import NamedTuple

import click
from copydetect import CodeFingerprint, compare_files
from copydetect.utils import highlight_overlap
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cs336_kit.engine.assignment import is_students
from cs336_staff.grading.course import RESULTS_FOLDER, Course, find_checked_root, load_course, results_folder
from cs336_staff.grading.identity import handed_in, platforms_of, safe_name, together, with_groups
from cs336_staff.release.handout import cut_solution
from cs336_staff.sandbox.printable import printable
from cs336_staff.sandbox.reader import Reader
from cs336_staff.sandbox.submission import Refused
from cs336_staff.similarity.fingerprints import Unreadable, fingerprints, hashes_of

PRINTED, SHOWN = 10, 40  # pairs, on the terminal and on the page
LEAST = 100  # characters of code that is not given: two programs of a few lines are not alike because they share one
AROUND = 3  # lines that are shown before and after what is shared
PAGE = "similar.html"


class Work(NamedTuple):
    """A submission: its name, who handed it in, a hash of its code, and its fingerprints."""

    name: str
    students: frozenset[str]
    hash: str
    code: CodeFingerprint


class Pair(NamedTuple):
    """Two works, the part of the shorter one that they share, and both with what they share marked."""

    similarity: float
    one: Work
    other: Work
    marked: tuple[Markup, Markup]


@click.command()
@click.argument("submission", nargs=-1, required=True, type=click.Path(exists=True, readable=False, path_type=Path))
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=results_folder, show_default=RESULTS_FOLDER
)
def similar(submission: tuple[Path, ...], out: Path) -> None:
    """Compare each SUBMISSION with all others, and write the pairs that are most alike to similar.html, to look at.

    Nothing is run, and no grade depends on it. Attempts of one student and of members of one group are not compared.
    Give it the submissions of other years as well, or a solution from the web, and it compares with those.
    """
    root = find_checked_root()
    works, remarks = _works(root, submission, load_course(root))
    if len(works) < 2:
        raise click.ClickException("expected at least two submissions that can be compared")
    same = _identical(works)
    pairs, typical = _pairs(same)
    identical = [names for each in same if (names := _by_strangers(each))]
    facts = {"identical": identical, "pairs": pairs, "remarks": remarks, "count": len(works), "typical": typical}
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / PAGE).write_text(environment.get_template(PAGE).render(printable=printable, **facts), encoding="utf-8")
    console = Console()
    for remark in remarks:
        console.print(Text(f"Not compared: {printable(remark)}", "yellow"))
    for names in identical:
        console.print(Text(f"Identical: {printable(', '.join(names))}", "red"))
    table = Table("Similar", "Submission", "Submission", title="The most alike")
    for pair in pairs[:PRINTED]:
        table.add_row(f"{pair.similarity:.0%}", *(Text(printable(work.name)) for work in (pair.one, pair.other)))
    console.print(table if pairs else "No two submissions share anything that is not given.")
    console.print(Text(f"Half of the submissions resemble no other by more than {typical:.0%}."))
    console.print(Text(f"Resemblance is not proof. Both sources, side by side: {out / PAGE}"))


def _works(root: Path, paths: tuple[Path, ...], course: Course) -> tuple[list[Work], list[str]]:
    """Take in the submissions, and return those that can be compared, with remarks on what cannot."""
    given = _given(root)
    resolved = list(dict.fromkeys(path.resolve() for path in paths))
    platforms = platforms_of(resolved, course.platform)
    files = together(resolved, platforms)
    count = Counter(safe_name(path.name) for path in files)
    works: list[Work] = []
    remarks: list[str] = []
    with Reader() as reader, click.progressbar(files, label="Submissions", file=sys.stderr) as bar:
        for path in bar:
            name = safe_name(path.name)
            name = name if count[name] == 1 else str(path)
            try:
                handed = with_groups(handed_in(path, name, platforms[path.parent]), course.members)
                taken = reader.take_in(path, files[path])
                own = {file: source for file, source in taken.files.items() if not _ships(root, file)}
                hash, code = fingerprints(own, given)
            except (Refused, Unreadable, OSError) as reason:
                remarks.append(f"{name}: {reason}")
                continue
            if code.token_coverage < LEAST:
                remarks.append(f"{name}: next to nothing that is not given")
                continue
            works.append(Work(name, frozenset(student.key for student in handed.students), hash, code))
    return works, remarks


def _given(root: Path) -> set[int]:
    """Hash what every student has: their own files without the solutions, and the lab's code."""
    folders = (root / "cs336_basics", root / "cs336_kit" / "lab")
    files = [root / "adapters.py", *chain.from_iterable(folder.rglob("*.py") for folder in folders)]
    return hashes_of(cut_solution(str(file), file.read_text(encoding="utf-8"))[0] for file in files)


def _ships(root: Path, file: str) -> bool:
    """Tell whether it is a file of the handout in which students write nothing."""
    return not is_students(Path(file)) and (root / file).is_file()


def _identical(works: Sequence[Work]) -> list[list[Work]]:
    """Put together what differs in comments and white space alone."""
    same: defaultdict[str, list[Work]] = defaultdict(list)
    for work in works:
        same[work.hash].append(work)
    return list(same.values())


def _strangers(some: Sequence[Work], others: Sequence[Work]) -> Iterator[tuple[Work, Work]]:
    """Yield pairs of works that no student has a part in both of."""
    return ((one, other) for one, other in product(some, others) if one.students.isdisjoint(other.students))


def _by_strangers(works: Sequence[Work]) -> list[str]:
    """Name the works that somebody else handed in, too."""
    return list(dict.fromkeys(one.name for one, _ in _strangers(works, works)))


def _pairs(same: Sequence[Sequence[Work]]) -> tuple[list[Pair], float]:
    """Find the pairs that are most alike, one of each two identical groups.

    Returns:
        They, and the median of how much each submission resembles the one that it resembles most.
    """
    nearest = {id(works): float(bool(_by_strangers(works))) for works in same}
    found = []
    for some, others in combinations(same, 2):
        for one, other in _strangers(some, others):
            _, parts, places = compare_files(one.code, other.code)
            similarity = min(1.0, float(max(parts)))
            if similarity > 0:
                found.append((similarity, one, other, places))
                for works in (some, others):
                    nearest[id(works)] = max(nearest[id(works)], similarity)
            break  # the others have the same code
    found.sort(key=lambda each: -each[0])
    pairs = [
        Pair(similarity, one, other, (_marked(one, places[0]), _marked(other, places[1])))
        for similarity, one, other, places in found[:SHOWN]
    ]
    return pairs, statistics.median(nearest[id(works)] for works in same for _ in works)


def _marked(work: Work, places: object) -> Markup:
    html, _ = highlight_overlap(work.code.raw_code, places, "<mark>", "</mark>", truncate=AROUND, escape_html=True)
    return Markup(printable(html))  # noqa: S704 (it is escaped)
