"""The worth of each thing that the handout asks for, by problem: the table in docs/assignment.md."""

import re
from collections.abc import Iterable, Iterator

from cs336_kit.engine.suite import Suite

# What a test looks at, by its name: the first that matches counts.
LOOKS_AT = {
    "inputs are not changed": r"inputs?_alone|side_effects",
    "gradients": r"gradients",
    "half precision is computed in float32": r"half_precision",
    "float64 is computed in float64": r"last_digit\[float64",
    "the last digits": r"last_digit",
    "large logits, and −∞": r"large-logits|far-apart|minus-infinity",
    "zeros for a query that may attend to nothing": r"nothing",
    "K and V broadcast": r"key-value-head",
    "no mask": r"no-mask|without_a_mask",
    "no leading dimension": r"no-batch|\[1d|\[one-dimension|vector|by-hand",
    "two or more leading dimensions": r"two-batch-dims|five-batch|with-heads|\[4d|\[5d|more-dimensions",
    "an odd d_head without RoPE": r"heads-of-one",
    "token positions that are not given": r"not-given|from_zero",
    "the right answer, where no line below applies": r"",
}


def price_list(suite: Suite) -> Iterator[str]:
    """The lines of the table, in Markdown, for the required problems."""
    problems = [problem for problem in suite.problems.values() if not problem.bonus]
    prices = {what: dict.fromkeys((problem.id for problem in problems), 0.0) for what in LOOKS_AT}
    for test in suite.tests:
        if not test.bonus:
            what = next(what for what, pattern in LOOKS_AT.items() if re.search(pattern, test.name))
            prices[what][test.problem] += test.points
    yield row("", (problem.title for problem in problems))
    yield row("---", ["---:"] * len(problems))
    for what, of_problems in reversed(prices.items()):
        yield row(what, map(in_points, of_problems.values()))


def in_points(points: float) -> str:
    """To two places; nothing for nothing."""
    return f"{points:.2f}" if points > 1e-9 else ""


def row(first: str, others: Iterable[str]) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join([first, *others])} |"
