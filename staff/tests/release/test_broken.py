"""A solution is broken one token at a time, and what becomes of each mistake is counted."""

from dataclasses import replace
from functools import partial

import pytest

from staff.tests import ROOT
from whichline.engine.assignment import load_problems
from whichline.engine.suite import Suite
from whichline_grader.release import broken
from whichline_grader.release.stages import Stage

SOURCE = '''def f(x, y: int, scale=0.5):
    """A + b."""
    z = x.sum(-1) @ y
    return einsum(z, "a b c -> (a c) b") if x == 3 else print(*z)
'''


def test_each_token_that_can_be_another_one_is_replaced_once() -> None:
    mistakes = broken.list_mistakes("f.py", SOURCE, 0)
    assert {(each.line, each.old) for each in mistakes} == {
        *((1, "0.5"), (3, "x"), (3, "sum"), (3, "-"), (3, "1"), (3, "@"), (3, "y"), (4, "z"), (4, "=="), (4, "3")),
        *((4, "x"), (4, '"a b c -> (a c) b"')),
    }
    assert len({each.make(SOURCE) for each in mistakes}) == len(mistakes) == 13
    assert str(mistakes[0]) == "f.py:1:24: `0.5` became `(2 * 0.5)`"
    assert mistakes == broken.list_mistakes("f.py", SOURCE, 0) != broken.list_mistakes("f.py", SOURCE, 1)
    assert {each.line for each in broken.list_mistakes("f.py", SOURCE, 0, {4})} == {4}


def test_mistakes_are_made_in_the_solutions_of_a_problem_alone() -> None:
    problem = load_problems(ROOT)["linear"]
    mistakes = broken.list_solution_mistakes(ROOT, {"linear": problem}, seed=0, most=5)
    lines = (ROOT / problem.files[0]).read_text().splitlines()
    first = next(number for number, line in enumerate(lines, 1) if "BEGIN SOLUTION" in line)
    assert 0 < len(mistakes) <= 5
    assert all(first < each.line for each in mistakes)
    assert {each.file for each in mistakes} == {*problem.files}


@pytest.mark.slow
def test_what_becomes_of_a_mistake(solved_suite: Suite) -> None:
    tests = [each for each in solved_suite.tests if each.problem == "softmax" and not each.hidden]
    public = replace(solved_suite, tests=tests)
    file = public.problems["softmax"].files[0]
    lines = (ROOT / file).read_text().splitlines()
    at = next(number for number, line in enumerate(lines, 1) if ".sum(" in line)
    changes = [broken.Mistake(file, at, lines[at - 1].index("sum("), "sum", now) for now in ("mean", "sum")]
    mistakes = [*changes, broken.Mistake("adapters.py", 1, 0, "", "1 +")]
    outcomes = [*Stage().map(partial(broken.try_in_tree, public), mistakes)]
    assert outcomes == [broken.AT, broken.PASSED, broken.NOT_IMPORTED]


def test_the_table_names_those_whose_line_is_not_told() -> None:
    told, silent, endless = (broken.Mistake("a.py", line, 0, "+", "-") for line in (1, 2, 3))
    slow = ["1 of 3 not done in 60 s", "  a.py:3:1: `+` became `-`"]
    unnoticed = ["1 of 3 noticed by no public test", "  a.py:2:1: `+` became `-`"]
    said = [*broken.describe_outcomes([(silent, broken.PASSED), (told, broken.AT), (endless, broken.ENDLESS)])]
    assert said == ["1 of 3 told at the line", *slow, *unnoticed]
