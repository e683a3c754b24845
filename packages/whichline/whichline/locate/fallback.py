"""Wrong answers of which no place is proved: what their calls have in common, and where to begin to look."""

import re
from collections.abc import Sequence
from typing import Any

from whichline.engine.compare import WrongAnswer
from whichline.engine.finding import Finding
from whichline.engine.suite import Test
from whichline.locate.conditions import Call, Condition, find_condition, list_facts
from whichline.locate.run import Experiment, Runner, order_by_generality
from whichline.locate.search import Search
from whichline.locate.source_location import show_place

BEGIN = "The mark shows the first value that matches none of the handout's. It may still be right."
ENOUGH = 2  # cases with a right answer: what one alone does not have may be anything
ASK = "What should this be, by the formula? Is yours the same thing, computed another way?"


def find_unproved(
    runner: Runner,
    wrong: Sequence[Test],
    others: Sequence[Test],
    begins: Sequence[Test],
    told: bool = False,
) -> Finding | None:
    """Tell in which cases the answer is wrong, and the first number nobody knows; None if that says nothing.

    Args:
        runner: with its probes on.
        wrong: tests of one problem whose numbers are wrong.
        others: tests of the same problem.
        begins: the tests in which that number is looked for: those, or calls inside them that are wrong.
        told: whether something else is told of the problem: then nothing is marked.
    """
    these, right, raise_ = _judge_cases(runner, [*wrong, *others])
    condition = find_condition(these, right) if these and len(right) >= ENOUGH else None
    if not these or (right and told and not condition):
        return None
    place = {} if told else _find_first_unknown(runner, begins)
    if not condition and not place:
        return None
    problem = wrong[0].problem
    question = next((fact.ask for fact in (condition.facts if condition else ()) if fact.ask), ASK * bool(place))
    return Finding(
        problem,
        f"{problem}-unproved",
        (_describe_where(condition, len(these), len(these) + len(right), raise_), *[BEGIN] * bool(place)),
        question=question if place else question.replace("this line", "your code"),
        tests=tuple(test.name for test in wrong),
        **place,
    )


def _find_first_unknown(runner: Runner, tests: Sequence[Test]) -> dict[str, Any]:
    """Find the first value that nobody knows, tensors before numbers, to be shown; {} if there is none.

    A function that does the work of another adapter is not marked: what is wrong in it has tests of its own.
    """
    search = Search(Experiment(runner, order_by_generality(tests)))
    own = tests[0].cases()[0].call
    others = [key for key, pairs in runner.pairs.items() if all(pair.adapter != own for pair in pairs)]
    roots = [each for each in search.find_roots() if (each.file, each.function) not in others]
    roots.sort(key=lambda place: search.trace_of(place).is_number(place))
    return next((show_place(each.file, each.function, each.node, runner.suite.root) for each in roots), {})


def _describe_where(condition: Condition | None, wrong: int, judged: int, raise_: bool) -> str:
    """Say in which cases the answer is wrong: in those that meet a condition, or in so many."""
    if condition:
        where = re.sub("call", "stored case", condition.words, count=1) + ", and in no other"
    else:
        where = f"{wrong} of the {judged} stored cases" if wrong < judged else "every stored case"
    return f"{'Among the calls that return, the' if raise_ else 'The'} answer is wrong in {where}."


def _judge_cases(runner: Runner, tests: Sequence[Test]) -> tuple[list[Call], list[Call], bool]:
    """The calls on the stored cases of tests whose answer is wrong, those whose answer is right; do others raise?"""
    wrong: list[Call] = []
    right: list[Call] = []
    raise_ = False
    cases = {case.name: case for test in tests if test.stored and not test.memory for case in test.cases()}
    for case in cases.values():
        if "answer" not in case.expected:
            continue
        call, one = list_facts(case.call, list(case.inputs), case.inputs), case.copy()
        try:
            one.check(getattr(runner.suite.calls, one.call)(**one.inputs))
            right.append(call)
        except WrongAnswer:
            wrong.append(call)
        except (Exception, SystemExit):  # a crash is told as what it is
            raise_ = True
    return wrong, right, raise_
