"""What a submission is graded on: every planned test with its problem and its points."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from cs336_kit.engine.assignment import Problem


class SuiteError(Exception):
    """The suite cannot grade anything; the message says what is wrong with it."""


@dataclass(frozen=True)
class Planned:
    """One test that every submission gets a verdict for.

    Args:
        name: the test function, with the case it runs on in brackets.
        problem: the id of its problem.
        hidden: whether it belongs to the hidden suite.
        points: what it is worth.
        bonus: whether they come on top of the maximum.
    """

    name: str
    problem: str
    hidden: bool
    points: float
    bonus: bool

    @property
    def test(self) -> str:
        return self.name.partition("[")[0]


def with_hidden_tests(problems: Iterable[Problem], weights: Mapping[str, Mapping[str, float]]) -> dict[str, Problem]:
    """The problems by id, their points shared by public and hidden tests.

    Raises:
        SuiteError: a problem has no hidden tests, or there are some for a problem that does not exist.
    """
    by_id = {problem.id: problem for problem in problems}
    if by_id.keys() != weights.keys():
        raise SuiteError(f"expected hidden weights for {', '.join(by_id)}; got some for {', '.join(weights)}")
    return {name: replace(problem, tests={**problem.tests, **weights[name]}) for name, problem in by_id.items()}


def plan(problems: Mapping[str, Problem], tests: Iterable[tuple[str, bool]]) -> list[Planned]:
    """The planned tests, in the order of `tests`.

    Args:
        problems: what `with_hidden_tests` returns.
        tests: name of each collected test, and whether it is hidden.

    Raises:
        SuiteError: a test has no weight, or a weight no test: points would be lost or made.
    """
    tests = list(tests)
    problem_of = {test: problem for problem in problems.values() for test in problem.tests}
    cases = Counter(name.partition("[")[0] for name, _ in tests)
    if without_weight := cases.keys() - problem_of.keys():
        raise SuiteError(f"expected a weight for every test, got none for {', '.join(sorted(without_weight))}")
    if without_test := problem_of.keys() - cases.keys():
        raise SuiteError(f"expected a test for every weight, got none for {', '.join(sorted(without_test))}")
    if twice := [name for name, n in Counter(name for name, _ in tests).items() if n > 1]:
        raise SuiteError(f"expected tests of different names, got {twice[0]} twice")
    planned = []
    for name, hidden in tests:
        test = name.partition("[")[0]
        problem = problem_of[test]
        share = problem.tests[test] / sum(problem.tests.values()) / cases[test]
        planned.append(Planned(name, problem.id, hidden, problem.points * share, problem.bonus))
    return planned
