"""Findings of the problems' examinations on the tests that failed, and how many of these each one explains."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import jaxtyping

from cs336_kit.engine.assignment import find_needs
from cs336_kit.engine.case import CaseError
from cs336_kit.engine.compare import listed
from cs336_kit.engine.failure import Stopped, describe
from cs336_kit.engine.result import AS_EARLIER, Check, Explanation, Result
from cs336_kit.engine.room import load_room
from cs336_kit.engine.suite import Suite, Test
from cs336_kit.examination import experiment
from cs336_kit.examination.earlier import right_programs, say_what_earlier_explains
from cs336_kit.examination.silence import silence
from cs336_kit.way.finding import Finding, render
from cs336_kit.way.follow import follow

MOST = 3  # findings that a student is shown of one problem


@dataclass(frozen=True)
class Cause:
    """A finding of one or several functions of a problem.

    Args:
        found: by the adapter.
        fails: by the test's name, whether it fails on the program with this mistake alone.
    """

    found: dict[str, experiment.Finding]
    fails: dict[str, bool]

    @property
    def finding(self) -> experiment.Finding:
        return next(iter(self.found.values()))

    def explains(self, tests: Sequence[Test]) -> list[Test]:
        return [test for test in tests if self.fails.get(test.name)]

    def concerns(self, tests: Sequence[Test]) -> list[Test]:
        """Those that it explains; without a program, those whose cases it touches."""
        return self.explains(tests) if self.fails else [test for test in tests if _touches(self.found, test)]


@experiment.use_one_thread()
def explain(suite: Suite, results: Sequence[Result], most: int = MOST) -> list[Explanation]:
    """Say what the examinations find in the problems of which a test failed, and which of those tests that explains.

    A test is explained by a finding if it fails on the right program with this mistake, too. Crashes come first, then
    the findings that explain most points, then those without a program. A finding that makes no test fail is left out,
    and so is what is not written yet.

    Args:
        suite: the tests of the problems to examine, and the student's code.
        results: what became of the tests that were run, among them those of earlier problems.
        most: how many for each problem.
    """
    failed_a_check = any(each.raised == jaxtyping.TypeCheckError.__name__ for each in results)
    with silence(), nullcontext() if failed_a_check else without_type_checks():
        return _explain(suite, results, most)


@contextmanager
def without_type_checks() -> Iterator[None]:
    """Call functions whatever their annotations say: checking these takes half the time."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


def _explain(suite: Suite, results: Sequence[Result], most: int) -> list[Explanation]:
    passed, failed = {each.test for each in results if each.passed}, {each.test for each in results if each.is_wrong}
    explanations = []
    for problem in dict.fromkeys(test.problem for test in suite.tests if test.problem and test.name in failed):
        tests = [test for test in suite.tests if test.problem == problem and test.name not in passed]
        failing = [test for test in tests if test.name in failed]
        if said := say_what_earlier_explains(suite, problem, failing, results):
            of_earlier = tuple(test.name for test in failing)
            explanations.append(Explanation(problem, AS_EARLIER.format(problem), (said,), of_earlier))
            continue
        found = _follow(suite, problem, failing, passed)
        says_all = bool(found) and found[-1].says_all
        causes = [] if says_all else sorted(_find_causes(suite, problem, tests), key=lambda each: _rank(each, failing))
        causes = causes[:most]
        if found:
            # What a cause asks of the whole function, a place would ask again.
            told = [replace(each, question="", section="") for each in found] if causes else found
            lines = [line for each in told for line in ("", *render(each))][1:]
            explanations.append(Explanation(problem, f"{problem}-place", tuple(lines), tuple(t.name for t in failing)))
        said = [list(_lines(cause, suite.root)) for cause in causes]
        if not (found and found[-1].proof):  # then it is said there what passes
            said = [[*lines, *_count(cause, causes, failing)] for cause, lines in zip(causes, said, strict=True)]
            if causes:
                said[-1] += _promise(suite, problem, causes, failing)
        explanations += [
            Explanation(problem, cause.finding.id, tuple(lines), tuple(test.name for test in cause.concerns(failing)))
            for cause, lines in zip(causes, said, strict=True)
        ]
    return explanations


def _follow(suite: Suite, problem: str, failing: Sequence[Test], passed: Collection[str]) -> list[Finding]:
    """Find the places in the student's code that make the tests fail, where that code runs in this process."""
    steps = {adapter: steps for each in suite.problems for adapter, steps in load_room(each).steps.items()}
    if suite.remote or not load_room(problem).steps:
        return []
    needs = find_needs(suite.problems, problem) if problem in suite.problems else ()
    earlier = [test for test in suite.tests if test.problem in needs]
    right = {need for need in needs if all(test.name in passed for test in earlier if test.problem == need)}
    with suppress(Exception, Stopped, SystemExit):  # a student's objects may do anything when they are looked at
        return follow(suite, steps, failing, [test for test in earlier if test.problem in right])
    return []


def _find_causes(suite: Suite, problem: str, tests: Sequence[Test]) -> Iterator[Cause]:
    """Examine the functions of a problem for what makes some of these tests fail; what is the same in two is one."""
    causes: dict[str, dict[str, experiment.Finding]] = {}
    ids: dict[tuple[str, str], str] = {}
    for adapter, examine in load_room(problem).examinations.items():
        # A student's objects may do anything when they are looked at, and a worker may be stopped.
        with suppress(Exception, Stopped, SystemExit):
            for finding in examine(getattr(suite.calls, adapter)):
                if _is_written(finding, suite.root):
                    id = ids.setdefault((finding.measured, finding.means), finding.id)
                    causes.setdefault(id, {}).setdefault(adapter, finding)
    for found in causes.values():
        if programs := {adapter: finding.program for adapter, finding in found.items() if finding.program}:
            tried = {test.name: not test.memory and suite.fails_on(programs, test) for test in tests}
            if any(tried.values()):
                yield Cause(found, {test: fails for test, fails in tried.items() if fails is not None})
        elif any(_touches(found, test) for test in tests):
            yield Cause(found, {})


def _touches(found: dict[str, experiment.Finding], test: Test) -> bool:
    if test.memory:
        return any(finding.memory for finding in found.values())
    with suppress(CaseError):  # the test says so when it runs
        return any(case.call in found and found[case.call].touches(case) for case in test.cases())
    return False


def _is_written(finding: experiment.Finding, root: Path) -> bool:
    return not finding.error or describe(finding.error, root).check is not Check.NOT_WRITTEN


def _rank(cause: Cause, failing: Sequence[Test]) -> tuple[int, float]:
    if cause.finding.error and "gradient" not in cause.finding.id:
        return 0, 0.0
    return (1, -sum(test.points for test in cause.explains(failing))) if cause.fails else (2, 0.0)


def _lines(cause: Cause, root: Path) -> Iterator[str]:
    finding = cause.finding
    in_both = not finding.program and len(cause.found) > 1
    both = "both " * (len(cause.found) == 2)
    yield finding.measured + f" This is so in {both}{listed(cause.found)}." * in_both
    if finding.means:
        yield finding.means
    if finding.error:
        yield from (f"  {line}" for line in describe(finding.error, root).details)
    if finding.question:
        yield f"  Think: {finding.question}"
    page = "bonus" if finding.section.startswith("B") else "assignment"
    yield f"  Read:  docs/{page}.md, section {finding.section}"


def _count(cause: Cause, causes: Sequence[Cause], failing: Sequence[Test]) -> Iterator[str]:
    """Say how many of the failing tests it explains: of the problem, or all those of its function.

    Several causes may make the same test fail.
    """
    explained, asked = len(cause.explains(failing)), sum(test.name in cause.fails for test in failing)
    others = [test for each in causes if each is not cause for test in each.explains(failing)]
    if any(test in others for test in cause.explains(failing)) or (explained == len(failing) and len(causes) > 1):
        which = _all(explained) if explained == len(failing) else f"{explained} of the {len(failing)} tests"
        yield f"This mistake alone would make {which} fail."
    elif explained == len(failing):
        yield f"This explains {_all(explained)} that {_fail(explained)}."
    elif explained and explained == asked:
        yield f"This explains {_all(explained)} of {listed(cause.found)} that {_fail(explained)}."
    elif explained:
        yield f"This explains {explained} of the {len(failing)} tests that fail."


def _all(tests: int) -> str:
    return {1: "the test", 2: "both tests"}.get(tests, f"all {tests} tests")


def _fail(tests: int) -> str:
    return "fails" if tests == 1 else "fail"


def _promise(suite: Suite, problem: str, causes: Sequence[Cause], failing: Sequence[Test]) -> Iterator[str]:
    """Say that all tests pass without these mistakes, where all of them are explained.

    What fails on a right program as well looks at more than numbers, and may fail for another reason.
    """
    left = [test for test in failing if not any(cause.explains([test]) for cause in causes)]
    right = right_programs(suite.problems, problem) if left else {}
    if len(left) < len(failing) and all(test.memory or suite.fails_on(right, test) for test in left):
        this = "this" if len(causes) == 1 else "these"
        pass_ = {1: "it passes", 2: "both of them pass"}.get(len(failing), "all of them pass")
        but = f", but perhaps not {listed(test.name for test in left)}" if left else ""
        yield f"Correct {this}, and {pass_}{but}."
