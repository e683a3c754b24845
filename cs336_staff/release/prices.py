"""Points and prices: those of problems in the handout's texts, and those of faults in cs336_staff/docs/points.md.

`uv run python -m cs336_staff.release.prices` writes them into the pages of this tree; a test compares them. `cs336
staff handout` fills in those of the handout's texts once more.

What is priced, `cs336_staff/problems/faults.py` says, if there is such a file.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from cs336_kit.engine.assignment import Problem, find_root
from cs336_kit.engine.suite import Suite
from cs336_staff.authoring.programs import RIGHT
from cs336_staff.authoring.room import FOLDER, Adapter
from cs336_staff.grading.carried_forward import CarriedForward
from cs336_staff.release.verify import both_suites, run_suite

TEXTS, POINTS = ("docs/assignment.md", "docs/bonus.md"), "cs336_staff/docs/points.md"
PROBLEM = re.compile(r"\*\*Problem `(\w+)`|<!-- problem ([\w, ]+) -->$")
IN_BRACKETS = r"\((bonus, )?[\d.+ ]+ points?\)"
IN_TABLE = r"\| [\d.]+( \(bonus\))? \|"

Program = Mapping[str, Adapter]


def earned(suite: Suite, program: Program, bonus: bool = False) -> dict[str, float]:
    """The points of a program in each problem that is, or is not, a bonus."""
    some = replace(suite, tests=[test for test in suite.tests if test.bonus == bonus])
    points = {test.problem: 0.0 for test in some.tests}
    carried = CarriedForward(some)
    for test, result in zip(some.tests, run_suite(some, program), strict=True):
        points[test.problem] += carried.judge(test, result).points
    return points


def tables(suite: Suite) -> Iterator[list[str]]:
    """Write two tables: what each fault costs, and what each trivial program earns, by problem."""
    titles = [*(problem.title for problem in suite.problems.values() if not problem.bonus), "Total"]
    priced = import_module("cs336_staff.problems.faults")
    for programs, full in ((priced.FAULTY, earned(suite, RIGHT)), (priced.TRIVIAL, {})):
        table = [row("Loses" if full else "Earns", titles), row("---", ["---:"] * len(titles))]
        for what, program in programs.items():
            points = [abs(full.get(problem, 0.0) - points) for problem, points in earned(suite, program).items()]
            table.append(row(what, map(in_points, [*points, sum(points)])))
        yield table


def price_list(suite: Suite) -> list[str]:
    """Write the table of what each thing that the handout asks for is worth, in the required problems."""
    problems = [problem for problem in suite.problems.values() if not problem.bonus]
    looks_at = import_module("cs336_staff.problems.faults").LOOKS_AT
    prices = {what: dict.fromkeys((problem.id for problem in problems), 0.0) for what in looks_at}
    for test in suite.tests:
        if not test.bonus:
            what = next(what for what, pattern in looks_at.items() if re.search(pattern, test.name))
            prices[what][test.problem] += test.points
    rows = [row(what, map(in_points, of_problems.values())) for what, of_problems in reversed(prices.items())]
    return [row("", (problem.title for problem in problems)), row("---", ["---:"] * len(problems)), *rows]


def in_points(points: float) -> str:
    """To two places; nothing for nothing."""
    return f"{points:.2f}" if points > 1e-9 else ""


def row(first: str, others: Iterable[str]) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join([first, *others])} |"


def with_points(text: str, suite: Suite) -> str:
    """The handout's text with the points of the suite's problems, wherever a line names one, and its price list."""
    lines = [_with_points(line, suite.problems) for line in text.splitlines(keepends=True)]
    return with_table("".join(lines), price_list(suite)) if (FOLDER / "faults.py").exists() else "".join(lines)


def _with_points(line: str, problems: Mapping[str, Problem]) -> str:
    named = PROBLEM.search(line)
    stated = [problems[id] for id in (named[1] or named[2]).split(", ") if id in problems] if named else []
    if not stated:
        return line
    points, bonus = " + ".join(f"{problem.points:g}" for problem in stated), any(problem.bonus for problem in stated)
    in_brackets = f"({'bonus, ' * bonus}{points} point{'s' * (points != '1')})"
    in_table = f"| {points}{' (bonus)' * bonus} |"
    return re.sub(IN_TABLE, in_table, re.sub(IN_BRACKETS, in_brackets, line))


def with_table(text: str, table: Sequence[str]) -> str:
    """The text with `table` in the place of the one whose first cell is the same."""
    first = re.escape(table[0].split("|")[1])
    old = re.compile(rf"^\|{first}\|.*\n\| --- \|.*\n(\|.*\n)+", re.MULTILINE)
    return old.sub(lambda _: "\n".join([*table, ""]), text)


def handout_texts(root: Path, suite: Suite) -> Iterator[tuple[str, str]]:
    """The name of each of the handout's texts, and the text as it should be."""
    for name in TEXTS:
        if (root / name).exists():
            yield name, with_points((root / name).read_text(encoding="utf-8"), suite)


def pages(root: Path) -> Iterator[tuple[Path, str]]:
    """Each page that states points, and its text as it should be."""
    suite = both_suites(root)
    yield from ((root / name, text) for name, text in handout_texts(root, suite))
    text = (root / POINTS).read_text(encoding="utf-8")
    for table in tables(suite):
        text = with_table(text, table)
    yield root / POINTS, text


if __name__ == "__main__":
    for path, text in pages(find_root(Path.cwd())):
        path.write_text(text, encoding="utf-8")
