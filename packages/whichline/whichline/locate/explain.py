"""What students are told of the tests that fail: of each problem so much, and of what several lead to once."""

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

MOST = 3  # findings that a student is shown of one problem
SECONDS = 60.0  # of processor time for one problem, where a student waits


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
    """Say what is wrong in the problems of which a test failed, and which of those tests that explains.

    The selection of tests changes nothing in what is found: if one failed, the other tests of its problem run, too. The
    selected tests decide which findings are told.

    Args:
        suite: the tests, and the student's code in this process.
        results: what became of the tests that were selected.
        most: how many for each problem.
        only: the ids of the problems to look into, if not all.
        before: what was found in other problems; it is given back, with what else it explains.
        observed: the copy of the student's code, if one is used for several searches.
        errors: gets those of the search itself, for staff, in words; without it they are raised.
        seconds: of processor time that the search in one problem may take: grading counts runs alone.
    """
    selected = {each.test: each.problem for each in results if each.is_wrong and not each.hidden}
    asked = {problem for problem in selected.values() if problem and (only is None or problem in only)}
    results = [*results, *_run_others(suite, results, asked)]
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
        found = [*dict.fromkeys(_refer(suite, each, found, observed) for each in found)]
        return [told for each in found if (told := _apply_feedback_level(suite, each))]


def _run_others(suite: Suite, results: Sequence[Result], problems: Collection[str]) -> list[Result]:
    """Run the tests of some problems that have no result."""
    ran = {each.test for each in results}
    return [suite.run(test) for test in suite.tests if test.problem in problems and test.name not in ran]


# Where somebody waits, and would see what the student's code prints when it runs again.
explain = silence()(partial(find, seconds=SECONDS))


def _take(found: Sequence[Finding], most: int) -> list[Finding]:
    """The first findings; of two places that are proved together, both."""
    first = found[most - 1 : most + 1]
    are_together = len(first) == 2 and not first[0].proof and first[0].tests == first[1].tests
    return [*found[: most + are_together]]


def _apply_feedback_level(suite: Suite, finding: Finding) -> Finding | None:
    """The finding, or what the assignment leaves of it."""
    told = suite.problems[finding.problem].told if finding.problem in suite.problems else "where"
    if told == "what":
        said = tuple(line for line in finding.said if line != BEGIN)
        return replace(finding, said=said, file="", line=0, function="", columns=(0, 0), code=(), likewise=())
    return None if told == "tests" else finding


def _join(suite: Suite, found: Sequence[Finding], own: Sequence[Finding], failing: Sequence[Test]) -> list[Finding]:
    """All findings, where what tests of several problems lead to is told once, of the first one.

    Two places that are proved together are both told.
    """
    told = {each: first for each in own if (first := find_same(each, found))}
    together = {each.tests for each in own if each not in told}
    told = {each: first for each, first in told.items() if each.proof or each.tests not in together}
    new = [each for each in own if each not in told]
    if not told:
        return [*found, *new]
    names = {name for each in told for name in each.tests}
    tests = tuple(test.name for test in failing if test.name in names)
    problem = failing[0].problem
    title = suite.problems[problem].title
    also = f"{'all ' * (len(tests) == len(failing) > 1)}{len(tests)} failing test{'s' * (len(tests) != 1)} of {title}"
    firsts = list(dict.fromkeys(told.values()))
    found = [replace(each, also=(*each.also, also)) if each in firsts else each for each in found]
    id, repeats = f"{problem}-as-earlier", tuple(each.id for each in firsts)
    said, function = f"{firsts[0].file}:{firsts[0].line} explains {also}, too.", ""
    if firsts[0].function == MODULE:
        said, function = f"{title} could not run: the same file cannot be imported.", MODULE
    return [*found, *new, Finding(problem, id, (said,), function=function, tests=tests, repeats=repeats)]


def _refer(suite: Suite, each: Finding, found: Sequence[Finding], observed: Observed) -> Finding:
    """The finding, or, where it is about code that runs a line that is proved to be wrong elsewhere, a word of that."""
    others = [one for one in found if one.proof and one.file and one.problem != each.problem]
    proved = [one for one in others if f"-{RAISES}" not in one.id]  # a line that raises need not be wrong
    if not each.file or not proved or not each.tests:
        return each
    lines = _list_run(suite, each, observed)
    wrong = [one for one in proved if (one.file, one.line) in lines]
    if not wrong:
        return each
    title, count = suite.problems[each.problem].title, len(each.tests)
    tests = f"{count} failing test{'s' * (count > 1)} of {title} also run{'s' * (count == 1)}"
    said = f"{tests} {wrong[0].file}:{wrong[0].line}: correct that line first."
    return Finding(each.problem, f"{each.problem}-as-earlier", (said,), tests=each.tests, repeats=(wrong[0].id,))


def _list_run(suite: Suite, finding: Finding, observed: Observed) -> set[tuple[str, int]]:
    """The lines that run inside the call that a finding is about; if nothing is proved of it, all in its tests."""
    tests = [test for test in suite.tests if test.name == finding.tests[0] and not test.memory]
    traces = [make_runner(suite, finding.problem, observed).look(test) for test in tests]
    places = [
        (trace, place, (name_file(place.file, suite.root), place.line)) for trace in traces for place in trace.places
    ]
    if finding.id.endswith(UNPROVED):
        return {line for _, _, line in places}
    own = [(trace, place) for trace, place, line in places if line == (finding.file, finding.line)]
    calls = [(trace, place) for trace, place in own if find_columns(place.file, place.node) == finding.columns]
    inside = {each for trace, place in calls for each in trace.inside.get(place, ())}
    backward = {each for trace in traces if "-gradient" in finding.id for each in list_backward_lines(trace)}
    lines = {(each.file, each.line) for each in inside} | backward
    return {(name_file(file, suite.root), line) for file, line in lines}


def describe_errors(errors: Sequence[str]) -> list[str]:
    """Tell a student of errors that are ours, if there are any."""
    return [*errors, "This is not your mistake: please show it to the staff of your course."] if errors else []


@contextmanager
def _use_one_thread() -> Iterator[None]:
    """Compute with one thread: threads that wait for each other cost more than they bring, in calls this small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
