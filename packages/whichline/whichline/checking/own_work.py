"""Tell students, before they hand in, which functions they use although they must write them themselves.

Such functions let tests pass. The grader watches for the same functions and deducts the same points.
"""

import linecache
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from whichline.engine.assignment import FILE_NAME, Problem, is_own_file, name_command
from whichline.engine.problem_folder import list_adapters
from whichline.rules.deductions import compute_deductions
from whichline.rules.forbidden import load_forbidden
from whichline.rules.settings import take_compilers_away
from whichline.rules.watch import Use, Watch

MAX_SHOWN = 3  # lines for one problem


def watch_students_code(root: Path) -> Watch:
    """Install a watch on the student's files, before they are imported; their code then runs uncompiled."""
    take_compilers_away()
    watch = Watch(load_forbidden(root / FILE_NAME), cache(partial(is_own_file, root=root)))
    watch.install()
    return watch


def find_adapters(problem: str, adapters: Any) -> list[Any]:
    """The adapters of a problem that the student has written."""
    return [getattr(adapters, name) for name in list_adapters(problem) if hasattr(adapters, name)]


def find_deductions(
    root: Path, problems: Mapping[str, Problem], seen: Mapping[str, Collection[Use]]
) -> dict[str, dict[str, float]]:
    """Compute the points that each problem loses, for each work that is not the student's own.

    In `seen` are the forbidden functions that the tests of each problem used, if they ran.
    """
    name_work = load_forbidden(root / FILE_NAME).name_work
    ran = {problem: {name_work(use.function) for use in seen.get(problem, ())} for problem in problems}
    return compute_deductions(ran, {problem.id: problem.points for problem in problems.values()})


def list_forbidden_work(root: Path, problems: Mapping[str, Problem], seen: Mapping[str, Collection[Use]]) -> list[str]:
    """A title, and lines that say which problems lose points for what; nothing if all is the student's own work."""
    found = find_deductions(root, problems, seen)
    if not found:
        return []
    name_work = load_forbidden(root / FILE_NAME).name_work
    lines = ["Write this yourself"]
    for problem, paid in found.items():
        bonus = "bonus " * problems[problem].bonus
        cost = f"{sum(paid.values()):g} of {problems[problem].points:g} {bonus}points will not count"
        lines.append(f"{problem}: {cost}. In its tests you use")
        uses = sorted(use for use in seen[problem] if name_work(use.function) in paid)
        for use in uses[:MAX_SHOWN]:
            file, source = Path(use.file).relative_to(root).as_posix(), linecache.getline(use.file, use.number).strip()
            lines.append(f"  {replace(use, file=file, source=source)}")
    lines.append("Compute it yourself; docs/assignment.md says what you may use.")
    everything = {use for uses in seen.values() for use in uses}
    if find_deductions(root, problems, {problem: seen.get(problem, everything) for problem in problems}) != found:
        check = f"{name_command('check')} runs them all"
        lines.append(f"With all problems run, another one may lose these points; {check}.")
    return lines
