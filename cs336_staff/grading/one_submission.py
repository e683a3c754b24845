"""One submission: run both suites on it and find what is wrong, or run one of its tests again."""

import difflib
import resource
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import click
import torch
from torch import Tensor

from cs336_kit.engine.compare import in_dtype
from cs336_kit.engine.result import Outcome, Result
from cs336_kit.rules.forbidden import FORBIDDEN, work_of
from cs336_kit.rules.watch import Use
from cs336_staff.authoring.room import load_rooms, reference_of
from cs336_staff.grading.advice import ask_for_advice
from cs336_staff.grading.carried_forward import CarriedForward
from cs336_staff.grading.grading import Notes
from cs336_staff.grading.suite import GradedSuite
from cs336_staff.sandbox.confinement import Sandbox
from cs336_staff.sandbox.proxy import Adapters
from cs336_staff.sandbox.submission import Submission
from cs336_staff.sandbox.worker import Limits, Starved, Worker

FIGURE = Limits(call_seconds=2, seconds=10)
# Processor time and private memory of this side for one submission, whose replies it reads and compares.
TRUSTED_SECONDS, TRUSTED_BYTES = 120, 4 << 30
MAX_SHOWN = 3  # lines that break the rules, of a work


class Faulty(Exception):
    """A test that ended with an error of ours; all of the submission is graded again."""


def grade_one(suite: GradedSuite, sandbox: Sandbox, submission: Submission) -> tuple[list[Result], Notes]:
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
    with Worker(sandbox, submission, suite.course.limits) as worker:
        for seen in (public, hidden):
            tests = [test for test in suite.suite.tests if test.hidden == (seen is hidden)]
            for result in suite.run(worker, tests, carried):
                if result.outcome is Outcome.ERROR:
                    raise Faulty(f"{result.test}: {result.staff or result.text}")
                results.append(result)
                seen[result.problem] |= worker.forbidden
            if seen is public:  # what it says from here on may spell hidden inputs
                missing = tuple(sorted(worker.missing))
                notes = replace(notes, stdout=worker.stdout, stderr=worker.stderr, missing=missing)
                notes = _find_what_is_wrong(suite, sandbox, submission, results, notes)
    return results, replace(notes, forbidden=judge(public, hidden), peak_memory=worker.peak_memory)


def _find_what_is_wrong(
    suite: GradedSuite, sandbox: Sandbox, submission: Submission, results: Sequence[Result], notes: Notes
) -> Notes:
    """Note what is found in what fails, before any process of the submission has seen a hidden input.

    What fails hidden tests alone is not looked into: what the submission raises there would tell what they hold.
    """
    if all(result.passed for result in results):
        return notes
    notes = replace(notes, explanations=ask_for_advice(sandbox, submission, results))
    failed = {result.problem for result in results if not result.passed}
    figures = (room.figure for id, room in load_rooms().items() if room.figure and id in failed)
    if figure := next(figures, None):
        with suppress(Starved), Worker(sandbox, submission, FIGURE) as worker:
            suite.proxy.worker = worker
            notes = replace(notes, weights=figure.measure(getattr(suite.suite.calls, figure.call)))
    return notes


def judge(
    public: Mapping[str, Collection[Use]], hidden: Mapping[str, Collection[Use]]
) -> dict[str, dict[str, tuple[str, ...]]]:
    """For each problem, the works that are not the student's own, and the lines that ran them.

    All of it was seen by the watch beside the submission (`cs336_kit/rules/watch.py`). Nothing is read in the source:
    what is only written there may never run. Best effort, as whatever runs in the same process as what it watches.

    A hostile worker chooses what it reports, and could spell hidden inputs with it. So the lines that are shown are
    what public tests ran, before it had a hidden input; if only hidden ones ran any, it is one function. Of functions
    that do no problem's work one is enough: it costs all points.

    Args:
        public: what the public tests of each problem ran, in the order of the assignment.
        hidden: the same of the hidden tests.
    """
    judged = {}
    for problem, uses in public.items():
        seen, later = sorted(_check_uses(uses)), sorted(_check_uses(hidden[problem]))
        works: dict[str, tuple[str, ...]] = {}
        for use in seen:
            shown = works.get(work_of(use.function), ())
            works[work_of(use.function)] = (*shown, str(use))[:MAX_SHOWN]
        for use in later:
            work = work_of(use.function)
            if work in public or not works.keys() - public.keys():
                works.setdefault(work, (f"{use.function}, in a hidden test",))
        if works:
            judged[problem] = works
    return judged


def _check_uses(uses: Collection[Use]) -> Iterator[Use]:
    """Those of functions that are forbidden; without a place where the submission has no such line."""
    for use in uses:
        if use.function in FORBIDDEN:
            yield use if use.source else Use("", 0, use.function)


class Recorder(Adapters):
    """The proxy, which keeps its last call."""

    name = ""
    arguments: tuple[object, ...] = ()
    answer: Any = None

    def call(self, name: str, *arguments: object) -> Any:
        self.name, self.arguments, self.answer = name, arguments, None
        self.answer = super().call(name, *arguments)
        return self.answer


def reproduce_test(graded: GradedSuite, sandbox: Sandbox, submission: Submission, name: str) -> None:
    """Run the test or test function `name` of a submission and print its result and its last call.

    Of a test that did not pass, the last call is the one that it failed on; of a property test, the smallest one.

    Raises:
        click.UsageError: no test has this name.
        SandboxError: it cannot be run.
    """
    tests = [test for test in graded.suite.tests if name in (test.name, test.function)]
    if not tests:
        names = sorted({each for test in graded.suite.tests for each in (test.name, test.function)})
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f"is it {' or '.join(near)}?" if near else "results.json has the names"
        raise click.UsageError(f"no test is called {name}; {hint}")
    graded.suite.calls.adapters = recorder = Recorder(graded.suite.root / "adapters.py")
    with Worker(sandbox, submission, graded.course.limits) as worker:
        for result in replace(graded, proxy=recorder).run(worker, tests):
            click.secho(f"{result.test}: {result.outcome}", bold=True)
            if text := result.staff or result.text:
                click.echo(text)
            if recorder.name:
                _print_call(recorder)
        for stream, text in (("stdout", worker.stdout), ("stderr", worker.stderr)):
            if text:
                click.echo(f"{stream} of the submission:\n{text}")


def _print_call(recorder: Recorder) -> None:
    click.echo(f"{recorder.name} was called with")
    for i, argument in enumerate(recorder.arguments, start=1):
        click.echo(f"  argument {i}: {_describe(argument)}")
    click.echo(f"answer: {_describe(recorder.answer)}")
    wide = [in_dtype(x, torch.float64) for x in recorder.arguments]
    with torch.no_grad():
        click.echo(f"reference: {_describe(reference_of(recorder.name)(*wide))}")


def _describe(value: Any) -> str:
    if not isinstance(value, Tensor):
        return repr(value)
    return f"{tuple(value.shape)} {value.dtype}\n{value.detach()}"
