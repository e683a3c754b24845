"""The points that the handout's text states: taken from `assignment.toml`, so that it cannot contradict it.

`cs336 staff handout` fills them in for students. `python -m cs336_staff.release.stated_points` writes them into the
text of this tree.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from cs336_kit.engine.assignment import Problem, find_root
from cs336_staff.release.price_list import price_list
from cs336_staff.release.verify import both_suites

TEXT = "docs/assignment.md"
PROBLEM = re.compile(r"(\*\*Problem `(\w+)` )\([^)]*\)")
CONTENTS = re.compile(r"^(- \[(\d+) .*?\]\(#.*?\)) \([^)]*points?\)$", re.MULTILINE)
RULES = re.compile(r"^(\| [^|\n]+ \| `(\w+)` \| )[^|\n]*( \|)$", re.MULTILINE)
PRICES = re.compile(r"^\|  \| [^`\n]+\n\| --- \|.*\n(\|.*\n)+", re.MULTILINE)


def with_points(text: str, problems: Mapping[str, Problem], prices: Iterable[str]) -> str:
    """The text with the points of `problems` in its contents, at each problem, and in its tables.

    Args:
        text: the handout's, with some points or others.
        problems: by id.
        prices: the lines of the table of what each thing is worth.
    """
    sections = {
        number: [problems[id] for _, id in PROBLEM.findall(section)]
        for number, section in re.findall(r"^## (\d+) (.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    }
    text = CONTENTS.sub(lambda found: f"{found[1]} {_stated(sections[found[2]])}".rstrip(), text)
    text = PROBLEM.sub(lambda found: f"{found[1]}{_stated([problems[found[2]]])}", text)
    text = RULES.sub(lambda found: f"{found[1]}{_in_table(problems[found[2]])}{found[3]}", text)
    return PRICES.sub("\n".join([*prices, ""]).replace("\\", r"\\"), text)


def _stated(problems: Collection[Problem]) -> str:
    """In brackets; nothing for no problem."""
    if not problems:
        return ""
    points = " + ".join(f"{problem.points:g}" for problem in problems)
    bonus = "bonus, " * any(problem.bonus for problem in problems)
    return f"({bonus}{points} point{'s' * (points != '1')})"


def _in_table(problem: Problem) -> str:
    return f"{problem.points:g}{' (bonus)' * problem.bonus}"


def main() -> None:
    """Write the points into the text of this tree."""
    root = find_root(Path.cwd())
    suite = both_suites(root)
    path = root / TEXT
    path.write_text(with_points(path.read_text(encoding="utf-8"), suite.problems, price_list(suite)), encoding="utf-8")


if __name__ == "__main__":
    main()
