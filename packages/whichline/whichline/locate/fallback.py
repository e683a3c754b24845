"""Wrong outputs where nothing is proved: what their calls have in common, and where a student can begin to look.

That is the expression that a repair changes, or else the first value that equals no checkpoint.
"""

import ast
import re
from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from whichline.engine.compare import WrongAnswer
from whichline.engine.finding import Finding
from whichline.engine.suite import Test
from whichline.locate.conditions import Call, Condition, find_condition, list_facts
from whichline.locate.options import Options
from whichline.locate.probe import Expression
from whichline.locate.repair import describe_repair, find_line
from whichline.locate.run import Experiment, Runner, order_by_generality
from whichline.locate.search import Search
from whichline.locate.source_location import show_place
from whichline.locate.values import share_numbers

BEGIN = "The mark shows the first value that matches none of the handout's. It may still be right."
UNPROVED = "-unproved"  # in the id of a finding
ENOUGH = 2  # test cases with a right output: from a single one, a condition means nothing
ASK = "What should this be, by the formula? Is yours the same thing, computed another way?"


def find_fallback(
    runner: Runner,
    wrong: Sequence[Test],
    failing: Sequence[Test],
    passing: Sequence[Test],
    begins: Sequence[Test],
    is_told: bool = False,
) -> Finding | None:
    """Report in which test cases the output is wrong, and where to begin; None if that says nothing.

    Args:
        runner: runs the tests.
        wrong: tests of one problem with wrong numbers.
        failing: all failing tests of the problem.
        passing: its passing tests.
        begins: the tests to search for the first unknown value: `wrong`, or wrong calls inside them.
        is_told: whether the problem has another finding; then this one marks nothing.
    """
    unknown = [] if is_told else _list_unknown(runner, begins)
    repair = None if is_told else describe_repair(runner, wrong, failing, passing, [*map(find_line, unknown)])
    condition, where = _describe_where(runner, [*wrong, *failing, *passing])
    if repair:
        return replace(repair, said=tuple(filter(None, (*repair.said, where))))
    if not where or (is_told and not condition) or not (condition or unknown):
        return None
    problem = wrong[0].problem
    ask = next((fact.ask for fact in (condition.facts if condition else ()) if fact.ask), ASK * bool(unknown))
    place = [show_place(each.file, each.function, each.node, runner.suite.root) for each in unknown[:1]]
    return Finding(
        problem,
        f"{problem}{UNPROVED}",
        (where, *[BEGIN] * bool(place)),
        question=ask if place else ask.replace("this line", "your code"),
        tests=tuple(test.name for test in wrong),
        **dict[str, Any](*place),
    )


def find_second(
    runner: Runner,
    wrong: Sequence[Test],
    failing: Sequence[Test],
    passing: Sequence[Test],
    patch: Options,
    first: Finding,
) -> list[Finding]:
    """Find a repair for the tests that still fail with the replacements of a first finding."""
    near = [*map(find_line, _list_unknown(runner, wrong, patch))]
    found = describe_repair(runner, wrong, failing, passing, near, patch, [first])
    return [found] if found else []


def find_simpler(
    runner: Runner, wrong: Sequence[Test], failing: Sequence[Test], passing: Sequence[Test], near: Sequence[Expression]
) -> Finding | None:
    """Find a repair, to report instead of doubtful values."""
    if repair := describe_repair(runner, wrong, failing, passing, [*map(find_line, near)]):
        where = _describe_where(runner, [*failing, *passing])[1]
        return replace(repair, said=tuple(filter(None, (*repair.said, where))))
    return None


def _list_unknown(runner: Runner, tests: Sequence[Test], patch: Options = MappingProxyType({})) -> list[Expression]:
    """List the first unknown values: tensors of inputs, then other tensors, and parts that a loop takes, then numbers.

    Those in functions that do the work of other adapters come later, since their mistakes have tests of their own.
    """
    search = Search(Experiment(runner, order_by_generality(tests), patch))
    own = tests[0].cases()[0].call
    others = [key for key, pairs in runner.pairs.items() if all(pair.adapter != own for pair in pairs)]

    def rank(place: Expression) -> tuple[bool, ...]:
        trace = search.find_trace(place)
        value = trace.objects[place][0]
        shares = (share_numbers(value, trace.objects[each][0]) for each in trace.list_operands(place))
        is_counted = isinstance(value, Tensor) and not value.is_floating_point() and value.dtype != torch.bool
        is_part = len(trace.values[place]) > 1 and any(shares)
        is_late = is_counted or is_part or isinstance(place.node, ast.Assign) or trace.is_numeric(place)
        is_others = (place.file, place.function) in others
        return trace.is_number(place), is_others, is_late, getattr(value, "dtype", None) == torch.bool

    return sorted(search.find_divergences(), key=rank)


def _describe_where(runner: Runner, tests: Sequence[Test]) -> tuple[Condition | None, str]:
    """Say in which test cases the output is wrong: under a condition, or in how many; "" if in none."""
    wrong, right, raise_ = _judge_cases(runner, tests)
    if not wrong:
        return None, ""
    condition = find_condition(wrong, right) if len(right) >= ENOUGH else None
    where = f"{len(wrong)} of the {len(wrong) + len(right)} stored cases" if right else "every stored case"
    if condition:
        where = re.sub("call", "stored case", condition.words, count=1) + ", and in no other"
    return condition, f"{'Among the calls that return, the' if raise_ else 'The'} answer is wrong in {where}."


def _judge_cases(runner: Runner, tests: Sequence[Test]) -> tuple[list[Call], list[Call], bool]:
    """Return the calls on fixtures with a wrong output, those with a right one, and whether others raise."""
    wrong, right, raise_ = list[Call](), list[Call](), False
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
        except (Exception, SystemExit):  # crashes have findings of their own
            raise_ = True
    return wrong, right, raise_
