"""Grade one submission: run both suites on it, and examine what failed."""

import resource
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from cs336_kit.engine.result import Outcome, Result
from cs336_kit.examination.problems import explain
from cs336_kit.rules.watch import Use
from cs336_staff.grading.carried_forward import CarriedForward
from cs336_staff.grading.gradebook import Notes
from cs336_staff.grading.rules import judge
from cs336_staff.grading.suite import GradedSuite
from cs336_staff.grading.weights import PROBLEM, measure_weights
from cs336_staff.sandbox.confinement import Sandbox
from cs336_staff.sandbox.submission import Submission
from cs336_staff.sandbox.worker import Limits, Starved, Worker

EXAMINATION = Limits(call_seconds=2, seconds=10)
# Processor time and private memory of this side for one submission, whose replies it reads and compares.
TRUSTED_SECONDS, TRUSTED_BYTES = 120, 4 << 30


class Faulty(Exception):
    """A test that ended with an error of ours; all of the submission is graded again."""


def grade_one(
    suite: GradedSuite, sandbox: Sandbox, submission: Submission, limits: Limits
) -> tuple[list[Result], Notes]:
    """Return the result of every test, and what else the report says; to be called in a process of its own.

    Raises:
        Faulty: a test could not be run, and not by the submission's doing.
        SandboxError, Starved: the same, outside of a test.
    """
    resource.setrlimit(resource.RLIMIT_CPU, (TRUSTED_SECONDS, TRUSTED_SECONDS))
    resource.setrlimit(resource.RLIMIT_DATA, (TRUSTED_BYTES, TRUSTED_BYTES))
    results: list[Result] = []
    public: dict[str, set[Use]] = {problem: set() for problem in suite.problems}
    hidden: dict[str, set[Use]] = {problem: set() for problem in suite.problems}
    notes = Notes(taken_in=submission.remarks)
    carried = CarriedForward(suite.suite)
    with Worker(sandbox, submission, limits) as worker:
        for seen in (public, hidden):
            tests = [test for test in suite.suite.tests if test.hidden == (seen is hidden)]
            for result in suite.run(worker, tests, carried):
                if result.outcome is Outcome.ERROR:
                    raise Faulty(f"{result.test}: {result.staff or result.text}")
                results.append(result)
                seen[result.problem] |= worker.forbidden
            if seen is public:  # what it prints from here on may spell hidden inputs
                missing = tuple(sorted(worker.missing))
                notes = replace(notes, stdout=worker.stdout, stderr=worker.stderr, missing=missing)
    notes = _examined(suite, sandbox, submission, results, notes)
    return results, replace(notes, forbidden=judge(public, hidden), peak_memory=worker.peak_memory)


def _examined(
    suite: GradedSuite, sandbox: Sandbox, submission: Submission, results: Sequence[Result], notes: Notes
) -> Notes:
    """Note what the examinations find, in a process that has seen no hidden input, until it is starved of time."""
    with suppress(Starved), Worker(sandbox, submission, EXAMINATION) as worker:
        suite.proxy.worker = worker
        notes = replace(notes, explanations=tuple(explain(suite.suite, results)))
        if not all(result.passed for result in results if result.problem == PROBLEM):
            notes = replace(notes, weights=measure_weights(suite.suite.calls.run_scaled_dot_product_attention))
    return notes
