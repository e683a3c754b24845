"""A process that has imported torch and loaded the public tests, and runs them for each command.

`runner.py` starts it as `fork`, which forks for each command (Linux), as `once`, which runs one command itself (on
every system), or as `as graded`, which is `once` without files, network and processes.

A command is one line of JSON on standard input: `run`, its number; `problems` to run, in this order; `kept`, problems
that passed before and that no change can reach; `early`, whether to run the tests first without and then with checks of
annotations, which take as long as the tests; `most`, how many explanations to look for in each problem. The output is
one event in each line. An early command kills the run. The end of the input ends the process.

The student's files are imported after the command has come. Before a fork torch computes in one thread, since the child
does not inherit other threads and would wait for them.
"""

import importlib
import io
import json
import os
import select
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import einops  # noqa: F401 (only to save time: students' code would import it in every run)
import torch

from whichline import quick_start
from whichline.checking import events
from whichline.checking.as_graded import refuse_as_in_grading
from whichline.checking.own_work import find_adapters, find_deductions, list_forbidden_work, watch_students_code
from whichline.checking.settings import describe_undone, undo_settings
from whichline.checking.watchdog import find_students_line, watchdog
from whichline.engine.annotations import check_annotations, without_checks
from whichline.engine.assignment import SuiteError, get_root, load_problems, student_files
from whichline.engine.case import CaseError
from whichline.engine.failure import describe
from whichline.engine.finding import Finding
from whichline.engine.result import Outcome, Result
from whichline.engine.suite import Suite, Test, load_suite, not_run
from whichline.locate.diagnose import observe
from whichline.locate.explain import describe_errors, explain
from whichline.rules.watch import Use, Watch

PRINTED = 12  # lines of a test's output that are shown
PIECES = 1000
SECOND = 1.0


class Reply:
    """Writes the events of one run."""

    def __init__(self, replies: BinaryIO, run: int, root: Path) -> None:
        self.replies, self.run, self.root = replies, run, root
        self.lock = threading.Lock()

    def say(self, event: events.Event) -> None:
        with self.lock:
            self.replies.write(events.write_event(self.run, event))

    def say_time(self, seconds: float) -> None:
        self.say(events.Busy(seconds, find_students_line(self.root)))


class Printed(io.TextIOBase):
    """Replaces standard output during a test, and keeps the end of what it prints."""

    def __init__(self) -> None:
        self.pieces: deque[str] = deque(maxlen=PIECES)

    def write(self, text: str) -> int:
        self.pieces.append(text[-PIECES:])
        return len(text)

    def last_lines(self) -> list[str]:
        lines = "".join(self.pieces).splitlines()
        return ["..."] * (len(lines) > PRINTED) + lines[-PRINTED:]


def run_tests(suite: Suite, wanted: Mapping[str, Any], reply: Reply, watch: Watch) -> None:
    """Import the student's files, run the tests of some problems, then search for the mistakes in those that fail."""
    problems, kept = wanted["problems"], wanted["kept"]
    reply.say(events.Busy(0.0))
    try:
        importlib.invalidate_caches()
        check_annotations(student_files(), undo_settings)  # adapters may import late
        with watchdog(SECOND, reply.say_time):
            suite.calls.adapters = importlib.import_module("adapters")
    except BaseException as error:  # exit() among them
        failure = describe(error, suite.root)
        reply.say(events.Broken("\n".join((failure.headline, *failure.details))))
        return
    results = {test.name: not_run(test, "did not run") for problem in problems for test in tests_of(suite, problem)}
    for test in (test for problem in kept for test in tests_of(suite, problem)):
        results[test.name] = replace(not_run(test, ""), outcome=Outcome.PASSED, check=None)
    for result in results.values():
        reply.say(result)
    seen: dict[str, set[Use]] = {problem: set() for problem in (*problems, *kept)}
    for checks in (without_checks(), nullcontext()) if wanted["early"] else (nullcontext(),):
        with checks:
            for problem in problems:
                seen[problem] |= run_problem(suite, problem, results, reply, watch)
    paid = find_deductions(suite.root, suite.problems, seen)
    deducted = {problem: sum(works.values()) for problem, works in paid.items()}
    forbidden = list_forbidden_work(suite.root, suite.problems, seen)
    reply.say(events.Notes(forbidden, deducted, describe_undone(suite.root)))
    found_before: list[Finding] = []
    observed, errors = observe(suite), list[str]()
    for problem in problems if wanted["most"] else ():
        reply.say(events.Looking(problem))
        with watchdog(SECOND, reply.say_time):
            found = explain(suite, [*results.values()], wanted["most"], {problem}, found_before, observed, errors)
        for finding in found:
            if finding not in found_before:
                reply.say(finding)
        found_before = found
    reply.say(events.Searched(describe_errors(errors)))


def tests_of(suite: Suite, problem: str) -> list[Test]:
    return [test for test in suite.tests if test.problem == problem]


def run_problem(suite: Suite, problem: str, results: dict[str, Result], reply: Reply, watch: Watch) -> set[Use]:
    """Run the tests of a problem, write each result that has changed, and return the forbidden functions in use."""
    failures, seen = 0, set[Use]()
    called = find_adapters(problem, suite.calls.adapters)
    for test in tests_of(suite, problem):
        output = Printed()
        with watch.watching(*called), redirect_stdout(output), watchdog(SECOND, reply.say_time):
            result = suite.run(test)
        seen |= watch.uses
        if (result.outcome, result.text) != (results[test.name].outcome, results[test.name].text):
            reply.say(result)
        results[test.name] = result
        failures += not result.passed
        if output.pieces and failures == 1:
            reply.say(events.Printed(test.name, output.last_lines()))
    reply.say(events.Decided(problem))
    return seen


def forks(commands: BinaryIO, replies: BinaryIO, root: Path) -> Iterator[bytes]:
    """Fork for each command: the child gets it, and the parent stays here until the input ends."""
    import torch.fx.experimental.symbolic_shapes  # torch would import it in every child, for half a second

    x = torch.ones(2, 2, requires_grad=True)
    torch.einsum("ij,jk->ik", x, x).exp().amax().backward()  # torch prepares many operations at their first call
    quick_start.collect_garbage_again()
    while line := commands.readline():
        child = os.fork()
        if child == 0:
            commands.close()
            yield line
            return
        os.setpgid(child, child)
        ended = os.pidfd_open(child)
        select.select([commands, ended], [], [])
        os.killpg(child, signal.SIGKILL)  # and its own children; if it has ended, it keeps its exit status
        _, status = os.waitpid(child, 0)
        os.close(ended)
        Reply(replies, json.loads(line)["run"], root).say(events.Ended(os.waitstatus_to_exitcode(status)))


def once(commands: BinaryIO) -> Iterator[bytes]:
    """Read one command. After it, a thread waits for the end of the input, and then ends the process at once."""

    def wait() -> None:
        commands.read()
        os._exit(1)

    quick_start.collect_garbage_again()
    if line := commands.readline():
        threading.Thread(target=wait, daemon=True).start()
        yield line


def main() -> None:
    """Wait for commands on the standard input, which is hidden from the student's code."""
    sys.dont_write_bytecode = True  # Python takes two saves in one second for the same file, if their sizes are equal
    torch.set_num_threads(1)  # the test cases are small: threads would cost time
    commands, replies = os.fdopen(os.dup(0), "rb", buffering=0), os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    root = get_root()
    sys.path.insert(0, str(root))
    watch = watch_students_code(root)
    if sys.argv[1] == "as graded":
        refuse_as_in_grading(root)
    try:
        suite, broken = load_suite(root, [root / "tests"], load_problems(root)), ""
        own = {Path(name).stem for name in student_files()}
        for name in [name for name in sys.modules if name.partition(".")[0] in own]:
            del sys.modules[name]  # a test imported it; each run imports its present version
        for test in suite.tests:
            with suppress(CaseError):  # the test reports it when it runs
                test.cases()
    except SuiteError as error:
        suite, broken = None, f"{error}; copy the tests and the fixtures from the handout again"
    how = sys.argv[1]
    sys.argv = [""]  # a parser in the student's files must not find our arguments
    for line in forks(commands, replies, root) if how == "fork" else once(commands):
        command = json.loads(line)
        reply = Reply(replies, command["run"], root)
        if suite is None:
            reply.say(events.Broken(broken))
        else:
            run_tests(suite, command, reply, watch)
        os._exit(0)  # an ordinary exit with torch is slow
