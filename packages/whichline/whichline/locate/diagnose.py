"""Finding the mistakes in a problem: each detector in turn gets the tests that no finding explains yet."""

import linecache
import math
import re
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from whichline.engine.assignment import find_needs
from whichline.engine.failure import describe
from whichline.engine.finding import Finding
from whichline.engine.result import Check
from whichline.engine.suite import Suite, Test
from whichline.locate.call_by_call import is_wrong_number, make_tests
from whichline.locate.calls import judge_calls, pair_functions
from whichline.locate.changes import MORE
from whichline.locate.contract import find_breaches
from whichline.locate.crashes import describe_crashes
from whichline.locate.deadline import Deadline
from whichline.locate.digits import HALF_INSIDE
from whichline.locate.fallback import find_fallback, find_second, find_simpler
from whichline.locate.numbers import Numbers, find_numbers, find_unread_argument, is_rounded
from whichline.locate.observed import CannotFollowError, Correction, Observed, keep_state
from whichline.locate.options import Options
from whichline.locate.reference import load_references
from whichline.locate.repair import describe_repair, find_line, list_ran
from whichline.locate.repeat import find_unrepeatable
from whichline.locate.run import Runner, order_by_generality
from whichline.locate.values import is_equal

OF_DTYPES = re.compile("dtype|itemsize|element_size|float16|half|finfo|bits")  # lines that ask for one
ASKED = 3  # failing tests whose calls are judged


@dataclass
class Diagnosis:
    """The search for the mistakes in a problem, as far as it has come."""

    runner: Runner
    failing: Sequence[Test]
    passing: Sequence[Test]  # the other tests of the problem
    found: list[Finding] = field(default_factory=list)
    patch: Options = field(default_factory=dict)  # the replacements of wrong values
    unread: Sequence[Finding] = ()  # an argument that the code seems not to read
    is_over: bool = False  # whether the search must end: the code keeps state, or we made an error

    def __post_init__(self) -> None:
        suite = self.runner.suite
        self.numbers = order_by_generality([test for test in self.failing if is_wrong_number(suite, test)])

    def leave_out(self, tests: Sequence[Test]) -> list[Test]:
        """List the tests that no finding explains yet."""
        explained = {name for each in self.found for name in each.tests}
        return [test for test in tests if test.name not in explained]


def find_state(case: Diagnosis) -> list[Finding]:
    """Find randomness, and state that is kept between calls; end the search if the code cannot be repeated."""
    if not case.runner.observed.places:
        case.is_over = True
        return []
    found = find_unrepeatable(case.runner, case.failing)
    case.is_over = bool(found) or bool(case.numbers and not _is_copy_alike(case.runner, case.numbers[0]))
    return [found] if found else []


def _is_copy_alike(runner: Runner, test: Test) -> bool:
    """Tell whether the copy returns what the student's code returned.

    It may not if a file was saved since, or where the code keeps something from one call to the next.

    Raises:
        CannotFollowError: it returns something else although the files are the same.
    """
    with keep_state():
        torch.default_generator.manual_seed(runner.seed)
        plain = runner.suite.ending(test)
    trace = runner.look(test)
    if is_equal(*(getattr(error, "answer", None) for error in (plain, trace.error))):
        return bool(trace.order)
    if runner.observed.is_saved_since() or runner.observed.find_kept():
        return False
    raise CannotFollowError(f"the code does something else in {test.name} when it is imported a second time")


def _find_corrected(case: Diagnosis) -> list[Finding]:
    """Find the findings of earlier problems that explain all failing tests, but for those that limit memory."""
    runner, tests = case.runner, [test for test in case.failing if not test.memory]
    if not tests or not (corrections := runner.observed.corrections):
        return []
    problem, names = tests[0].problem, tuple(test.name for test in tests)
    runner.pairs = pair_functions(runner, runner.suite.list_needed(problem))
    found = next((each.findings for each in corrections if each.findings and each.passes(runner, tests)), [])
    case.numbers = [] if found else case.numbers
    return [replace(each, problem=problem, tests=names) for each in found]


def _find_numbers(case: Diagnosis) -> list[Finding]:
    wrong = [test for test in case.numbers if not is_rounded(case.runner, test)]
    if not wrong:
        return []
    tests = case.numbers, case.failing, case.passing
    unread = find_unread_argument(case.runner, wrong)
    if unread.findings and (simpler := find_simpler(case.runner, *tests, unread.doubtful)):
        return [replace(simpler, said=unread.findings[0].said)]
    if unread.findings and unread.is_sure:
        return [*unread.findings]
    case.unread = unread.findings
    numbers = find_numbers(case.runner, wrong, case.failing)
    found, case.patch = [*numbers.findings], numbers.patch
    if passed := _find_passed(case, numbers):
        return passed
    for first, patch in numbers.parts:
        if second := find_second(case.runner, *tests, patch, first):
            return [first, *second]
    if numbers.doubtful:
        simpler = find_simpler(case.runner, *tests, numbers.doubtful)
        if simpler and [(simpler.file, simpler.line)] != [(each.file, each.line) for each in found]:
            case.patch = {}
            return [simpler]
        for first, patch in numbers.first:
            if second := find_second(case.runner, *tests, patch, first):
                return [first, *second]
    for first, patch in numbers.alone[:1] if found and len(found[0].tests) < len(case.failing) else ():
        if (second := find_second(case.runner, *tests, patch, first)) and len(second[0].tests) > len(found[0].tests):
            return [first, *second]
    return found


def _find_passed(case: Diagnosis, numbers: Numbers) -> list[Finding]:
    """Find an argument that a call should pass, and that makes up for all that was found, or for one of two."""
    lines, near = {each.line for each in numbers.unpassing}, [*map(find_line, numbers.unpassing)]
    if not lines:
        return []
    search = partial(describe_repair, only=lambda mutant: mutant.words == MORE and mutant.line in lines)
    for kept, patch in [(list[Finding](), {}), *(([one], patch) for one, patch in numbers.alone)]:
        if repair := search(case.runner, case.numbers, case.failing, case.passing, near, patch, kept):
            return [*kept, repair]
    return []


def _find_second(case: Diagnosis) -> list[Finding]:
    """Find a repair for the tests that still fail with the one correction that was found, or one for all tests."""
    rest = case.leave_out(case.numbers) if case.patch and len(case.found) == 1 else []
    wrong = [test for test in rest if not (is_rounded(case.runner, test) or case.runner.passes(test, case.patch))]
    if not wrong:
        return []
    if second := find_second(case.runner, wrong, case.failing, case.passing, case.patch, case.found[0]):
        return second
    if any(option.is_series for option in case.patch.values()):
        return []  # it may lack the right values of a few turns
    simpler = find_simpler(case.runner, case.numbers, case.failing, case.passing, [*case.patch])
    if not simpler or len(simpler.tests) <= len(case.found[0].tests):
        return []
    case.found, case.patch = [], {}
    return [simpler]


def find_contract(case: Diagnosis) -> list[Finding]:
    rest = case.leave_out(case.failing)
    found = find_breaches(case.runner, rest, case.patch, len(case.failing)) if rest else []
    return [_find_guard(case, each) or each for each in found]


def _find_guard(case: Diagnosis, finding: Finding) -> Finding | None:
    """Find the line that should have half precision computed in float32, if it asks for that in a wrong way."""
    tests = [test for test in case.failing if test.name in finding.tests and HALF_INSIDE in finding.id]
    ran = list_ran(case.runner, tests[0]) if tests else ()
    guards = {line for file, _, line in ran if OF_DTYPES.search(linecache.getline(file, line))}
    if not guards:
        return None
    repair = describe_repair(case.runner, tests, case.failing, case.passing, [], only=lambda each: each.line in guards)
    if not repair:
        return None
    where = f"line {finding.line}" if finding.file == repair.file else f"{finding.file}:{finding.line}"
    said = tuple(each.replace("This is", f"What {where} computes is", 1) for each in finding.said)
    return replace(repair, said=said, question=finding.question)


def _find_fallback(case: Diagnosis) -> list[Finding]:
    runner, wrong = case.runner, case.leave_out([test for test in case.failing if test in case.numbers])
    if not wrong:
        return []
    calls, adapters = judge_calls(runner, wrong[:ASKED]), runner.suite.list_needed(wrong[0].problem)
    runner.lent = calls.right
    inner = (make_tests(runner.suite, adapters[adapter], cases) for adapter, cases in calls.wrong.items())
    begins = next(filter(None, inner), wrong)
    found = find_fallback(runner, wrong, case.failing, case.passing, begins, bool(case.found))
    said = [sentence for each in case.unread for sentence in each.said]
    return [replace(found, said=(*said, *found.said))] if found else []


def _find_property(case: Diagnosis) -> list[Finding]:
    """Find a repair for tests of a property, such as how much dropout scales: no stored value shows the place."""
    runner = case.runner
    wrong = [test for test in case.leave_out(case.failing) if _is_of_property(runner.suite, test)]
    repair = describe_repair(runner, wrong, case.failing, case.passing, []) if wrong else None
    return [repair] if repair else []


def _is_of_property(suite: Suite, test: Test) -> bool:
    error = None if test.memory else suite.ending(test)
    return error is not None and describe(error, suite.root).check is Check.PROPERTY


def find_crashes(case: Diagnosis) -> list[Finding]:
    rest = case.leave_out(case.failing)
    runner = None if case.is_over else case.runner
    return describe_crashes(case.runner.suite, rest, case.failing, case.passing, runner)


FOLLOWING = (
    *(find_state, _find_corrected, _find_numbers, _find_second),
    *(find_contract, _find_fallback, _find_property),
)


def diagnose(
    suite: Suite,
    problem: str,
    failing: Sequence[Test],
    passing: Sequence[Test],
    observed: Observed | None = None,
    errors: list[str] | None = None,
    seconds: float = math.inf,
) -> list[Finding]:
    """Find the mistakes in a problem; crashes come first.

    Args:
        suite: the tests, and the student's code in this process.
        problem: its id.
        failing: its failing tests.
        passing: its other tests.
        observed: the copy of the student's code, if there is one.
        errors: gets the errors of the search itself, for staff; without it they are raised.
        seconds: of processor time for the search, beside its budget.
    """
    runner = make_runner(suite, problem, observed or observe(suite), seconds)
    case, corrections = Diagnosis(runner, failing, passing), runner.observed.corrections
    known = len(corrections)
    with _note_error(case, problem, errors):
        for detect in FOLLOWING:
            if not case.is_over:
                more = detect(case)  # which may take the place of what was found before
                case.found = [*case.found, *more]
    with _note_error(case, problem, errors):
        case.found = [*find_crashes(case), *case.found]
    corrections[known:] = [_report(each, case.found) for each in corrections[known:]]
    if runner.is_late:
        nothing = Finding(problem, f"{problem}-late", (), tests=tuple(each.name for each in failing))
        *before, last = case.found or [nothing]
        late = f"The search was stopped after {seconds:.0f} s: there may be more to find."
        return [*before, replace(last, said=(*last.said, late))]
    return case.found


def _report(correction: Correction, found: Sequence[Finding]) -> Correction:
    """Return a correction with the findings as they are reported, by their places; with none if one is not."""
    reported = {(each.file, each.line, each.columns): each for each in found}
    findings = [reported.get((each.file, each.line, each.columns)) for each in correction.findings]
    return replace(correction, findings=[each for each in findings if each and all(findings)])


def make_runner(suite: Suite, problem: str, observed: Observed, seconds: float = math.inf) -> Runner:
    """Make a runner with the references of a problem and of all problems that it needs."""
    needs = find_needs(suite.problems, problem) if problem in suite.problems else ()
    references = {adapter: each for id in (*needs, problem) for adapter, each in load_references(id).items()}
    return Runner(suite, references, observed, deadline=Deadline(seconds))


@contextmanager
def _note_error(case: Diagnosis, problem: str, errors: list[str] | None) -> Iterator[None]:
    """End the search at an error of ours and report it to staff; the results of the tests do not depend on it."""
    try:
        yield
    except Exception as error:
        case.is_over = True
        if errors is None:
            raise
        where = traceback.extract_tb(error.__traceback__)[-1]
        line = f"{Path(where.filename).name}:{where.lineno}"
        why = f"{type(error).__name__}: {error} ({line})"
        errors.append(f"The search for what is wrong in {problem} ended early: {why}")


def observe(suite: Suite) -> Observed:
    """Return a copy of the student's code with probes, for one search."""
    return Observed(suite.calls.adapters, suite.has_written, suite.cell)
