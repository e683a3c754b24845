"""Telling students, before they hand in, which functions they use that they must write themselves.

Their tests pass all the same. The grader has the same watch and the same prices.
"""

import linecache
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from cs336_kit.engine.assignment import STUDENT_FILES, Problem
from cs336_kit.rules.price import charged
from cs336_kit.rules.watch import Use, Watch

MAX_SHOWN = 3  # lines of a problem


def watch_students_code(root: Path) -> Watch:
    """A watch on the student's files, to be called before they are imported."""
    files = tuple(str(root / name) for name in STUDENT_FILES)
    watch = Watch(lambda file: file.startswith(files))
    watch.install()
    return watch


def not_own_work(root: Path, problems: Mapping[str, Problem], seen: Mapping[str, Collection[Use]]) -> list[str]:
    """A title, and lines: which problems pay for what, and what to do. Nothing if all is the student's own work.

    Args:
        root: the folder of the assignment.
        problems: all of them, by id.
        seen: what the tests of each problem ran, of those that were run.
    """
    found = charged({problem: seen.get(problem, ()) for problem in problems})
    if not found:
        return []
    lines = ["Write this yourself"]
    for problem, uses in found.items():
        worth = f"{problems[problem].points:g} {'bonus ' * problems[problem].bonus}points"
        lines.append(f"{problem}: its {worth} will not count. In its tests you use")
        lines += [f"  {_in(root, use)}" for use in uses[:MAX_SHOWN]]
    lines.append("Compute it yourself; section 1 of docs/assignment.md says what you may use.")
    everything = set[Use]().union(*seen.values())
    at_best = charged({problem: seen.get(problem, everything) for problem in problems})
    if any(at_best.get(problem) != uses for problem, uses in found.items()):
        lines.append("A problem that was not run now may pay for it instead; uv run cs336 check runs all of them.")
    return lines


def _in(root: Path, use: Use) -> Use:
    """The same with the file's name as students know it, and with the source."""
    source = linecache.getline(use.file, use.number).strip()
    return replace(use, file=Path(use.file).relative_to(root).as_posix(), source=source)
