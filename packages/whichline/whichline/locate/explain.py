"""The findings that students see: a few for each problem, and a mistake that breaks several problems only once."""

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial

import jaxtyping
import torch

from whichline.engine.annotations import without_checks
from whichline.engine.finding import MODULE, Finding
from whichline.engine.result import Result
from whichline.engine.silence import silence
from whichline.engine.suite import Suite, Test
from whichline.locate.diagnose import diagnose, make_runner, observe
from whichline.locate.fallback import BEGIN, UNPROVED
from whichline.locate.gradients import list_backward_lines
from whichline.locate.observed import Observed
from whichline.locate.source_location import RAISES, find_columns, find_same, name_file

MOST = 3  # findings of one problem that a student sees
SECONDS = 60.0  # of processor time for one problem, while a student waits


def find(
    suite: Suite,
    results: Sequence[Result],
    most: int = MOST,
    only: Collection[str] | None = None,
    before: Sequence[Finding] = (),
    observed: Observed | None = None,
    errors: list[str] | None = None,
    seconds: float = math.inf,
) -> list[Finding]:
    """Find the mistakes in each problem with a failed test, and the failing tests that each mistake explains.

    What is found does not depend on the selected tests: if one failed, the other tests of its problem run, too. The
    selection decides only which findings are reported.

    Args:
        suite: the tests, and the student's code in this process.
        results: of the selected tests.
        most: how many findings for each problem.
        only: the ids of the problems to search; None for all.
        before: findings of other problems; they are returned with what they also explain.
        observed: the copy of the student's code, if several searches share one.
        errors: gets the errors of the search itself, for staff; without it they are raised.
        seconds: of processor time for the search in one problem; grading limits only the runs.
    """
    selected = {each.test: each.problem for each in results if each.is_wrong and not each.hidden}
    asked = {problem for problem in selected.values() if problem and (only is None or problem in only)}
    ran = {each.test for each in results}
    results = [*results, *(suite.run(each) for each in suite.tests if each.problem in asked and each.name not in ran)]
    observed = observed or observe(suite)
    failed_a_check = any(each.raised == jaxtyping.TypeCheckError.__name__ for each in results)
    with _use_one_thread(), nullcontext() if failed_a_check else without_checks():
        passed = {each.test for each in results if each.passed}
        failed = {each.test for each in results if each.is_wrong and not each.hidden}
        found = [*before]
        for problem in dict.fromkeys(test.problem for test in suite.tests if test.problem in asked):
            tests = [test for test in suite.tests if test.problem == problem]
            failing = [test for test in tests if test.name in failed]
            passing = [test for test in tests if test.name in passed]
            own = diagnose(suite, problem, failing, passing, observed, errors, seconds)
            concern = [each for each in own if selected.keys() & set(each.tests)]
            found = _join(suite, found, _take(concern or own, most), failing)
        found = [*dict.fromkeys(_refer(suite, each, found, observed, failed) for each in found)]
        return [shown for each in found if (shown := _apply_feedback_level(suite, each))]


# For a student who waits, and who should not see again what the code prints.
explain = silence()(partial(find, seconds=SECONDS))


def _take(found: Sequence[Finding], most: int) -> list[Finding]:
    """Take the first findings; also the next one, if the last two are proved together."""
    first = found[most - 1 : most + 1]
    are_together = len(first) == 2 and not first[0].proof and first[0].tests == first[1].tests
    return [*found[: most + are_together]]


def _apply_feedback_level(suite: Suite, finding: Finding) -> Finding | None:
    """Leave of a finding what the assignment shows students; None if that is nothing."""
    level = suite.problems[finding.problem].feedback if finding.problem in suite.problems else "where"
    if level == "what":
        said = tuple(line for line in finding.said if line != BEGIN)
        return replace(finding, said=said, file="", line=0, function="", columns=(0, 0), code=(), likewise=())
    return None if level == "tests" else finding


def _join(suite: Suite, found: Sequence[Finding], own: Sequence[Finding], failing: Sequence[Test]) -> list[Finding]:
    """Join the findings of a problem to earlier ones; a mistake that was found before is reported once."""
    known = {each: first for each in own if (first := find_same(each, found))}
    together = {each.tests for each in own if each not in known}
    known = {each: first for each, first in known.items() if each.proof or each.tests not in together}
    new = [each for each in own if each not in known]
    if not known or any(each.step and not each.proof for each in new):  # only together do they explain these tests
        return [*found, *new]
    names = {name for each in known for name in each.tests}
    tests = tuple(test.name for test in failing if test.name in names)
    problem = failing[0].problem
    title = suite.problems[problem].title
    also = f"{'all ' * (len(tests) == len(failing) > 1)}{len(tests)} failing test{'s' * (len(tests) != 1)} of {title}"
    firsts = list(dict.fromkeys(known.values()))
    telling = [each for each in firsts if each.proof or f"-{RAISES}" in each.id]  # another one may explain only a part
    found = [replace(each, also=(*each.also, also)) if each in telling else each for each in found]
    id, repeats = f"{problem}-as-earlier", tuple(each.id for each in firsts)
    shown = (telling or firsts)[0]
    at, function = f"{shown.file}:{shown.line}", ""
    said = f"{at} explains {also}, too." if telling else f"For {also}, look at {at} first."
    if firsts[0].function == MODULE and f"-{RAISES}" in firsts[0].id:
        said, function = f"{title} could not run: the same file cannot be imported.", MODULE
    return [*found, *new, Finding(problem, id, (said,), function=function, tests=tests, repeats=repeats)]


def _refer(
    suite: Suite, each: Finding, found: Sequence[Finding], observed: Observed, failed: Collection[str]
) -> Finding:
    """Replace a finding by a reference to a line that is proved wrong in another problem, if its code runs that."""
    others = [one for one in found if one.file and one.problem != each.problem]
    unproved = [one for one in others if one.id.endswith(UNPROVED) and each.proof]
    others = [one for one in others if one.proof]
    proved = [one for one in others if f"-{RAISES}" not in one.id]  # the line that raises may be right
    if not each.file or not (proved or unproved) or not each.tests:
        return each
    wrong = [one for one in found[: found.index(each)] if one in proved and _is_part(each, one)]
    if not wrong:
        own = {test.name for test in suite.tests if test.problem == each.problem} & {*failed}
        lines = _list_run(suite, each, observed, is_all=own <= {*each.tests})
        wrong = [one for one in proved if (one.file, one.line) in lines]
        wrong += [one for one in unproved if (one.file, _find_top(one.function)) in lines]
    if not wrong:
        return each
    title, count = suite.problems[each.problem].title, len(each.tests)
    tests = f"{count} failing test{'s' * (count > 1)} of {title} also run{'s' * (count == 1)}"
    begin = "correct that line first" if wrong[0].proof else "look there first"
    said = f"{tests} {wrong[0].file}:{wrong[0].line}: {begin}."
    return Finding(each.problem, f"{each.problem}-as-earlier", (said,), tests=each.tests, repeats=(wrong[0].id,))


def _is_part(each: Finding, one: Finding) -> bool:
    """Tell whether an expression is a part of another one."""
    is_inside = _is_in(each.columns, one.columns) and each.columns != one.columns
    return (each.file, each.line) == (one.file, one.line) and is_inside


def _list_run(suite: Suite, finding: Finding, observed: Observed, is_all: bool) -> set[tuple[str, int | str]]:
    """List the lines that run inside the call of a finding; if it is not proved, all that run in its tests.

    Also list the functions, or their classes, that run inside the call. If it does not explain all failing tests, it
    may also be an argument of the call.
    """
    tests = [test for test in suite.tests if test.name == finding.tests[0] and not test.memory]
    traces = [make_runner(suite, finding.problem, observed).look(test) for test in tests]
    places = [(trace, place) for trace in traces for place in trace.places]
    at = {place: (name_file(place.file, suite.root), place.line) for _, place in places}
    if finding.id.endswith(UNPROVED):
        return {*at.values()}
    own = [(trace, place) for trace, place in places if at[place] == (finding.file, finding.line)]
    marks = [(each, find_columns(each[1].file, each[1].node)) for each in own]
    calls = [each for each, mark in marks if mark == finding.columns or (_is_in(finding.columns, mark) and not is_all)]
    inside = {each for trace, place in calls for each in trace.inside.get(place, ())}
    backward = {each for trace in traces if "-gradient" in finding.id for each in list_backward_lines(trace)}
    ran = {(each.file, at) for each in inside for at in (each.line, _find_top(each.function))} | backward
    return {(name_file(file, suite.root), at) for file, at in ran}


def _is_in(mark: tuple[int, int], other: tuple[int, int]) -> bool:
    """Tell whether a mark is inside another one in the same line, or is the same."""
    return other[0] <= mark[0] and mark[1] <= other[1]


def _find_top(function: str) -> str:
    """Return the name of the function or class at the top of a file around a function."""
    return function.partition(".")[0]


def describe_errors(errors: Sequence[str]) -> list[str]:
    """List errors of ours for a student, and what to do about them."""
    return [*errors, "This is not your mistake: please show it to the staff of your course."] if errors else []


@contextmanager
def _use_one_thread() -> Iterator[None]:
    """Compute with one thread, which is faster than several for calls this small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
