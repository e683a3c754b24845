"""One test of one submission again, with everything that students are not shown."""

import difflib
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor

from cs336_staff.authoring import references
from cs336_staff.grading.course import find_checked_root
from cs336_staff.grading.suite import load_both_suites, ready
from cs336_staff.sandbox.confinement import Layer
from cs336_staff.sandbox.proxy import Adapters
from cs336_staff.sandbox.submission import take_in
from cs336_staff.sandbox.worker import Worker


class Recorder(Adapters):
    """The proxy, which keeps its last call."""

    name = ""
    arguments: tuple[object, ...] = ()
    answer: Any = None

    def call(self, name: str, *arguments: object) -> Any:
        self.name, self.arguments, self.answer = name, arguments, None
        self.answer = super().call(name, *arguments)
        return self.answer


def reproduce_test(path: Path, name: str, layer: Layer) -> None:
    """Run the test `name` of the submission in `path` and print its result and its last call.

    Of a test that did not pass, the last call is the one that it failed on; of a property test, the smallest one.

    Raises:
        click.UsageError: no test has this name.
        SuiteError, SandboxError, Refused: it cannot be run.
    """
    root = find_checked_root()
    name = name.rpartition(": ")[2]  # in results.json the problem stands before it
    tests = load_both_suites(root).tests
    names = {test.name for test in tests} | {test.function for test in tests}
    if name not in names:  # said before anything is drawn or started
        near = difflib.get_close_matches(name, sorted(names), n=3, cutoff=0.5)
        hint = f"is it {' or '.join(near)}?" if near else "results.json has the names"
        raise click.UsageError(f"no test is called {name}; {hint}")
    submission = take_in(path)
    recorder = Recorder(root / "adapters.py")
    with ready(root, layer, recorder) as (graded, sandbox), Worker(sandbox, submission, graded.limits) as worker:
        tests = [test for test in graded.suite.tests if name in (test.name, test.function)]
        for result in graded.run(worker, tests):
            click.secho(f"{result.test}: {result.outcome}", bold=True)
            if text := result.staff or result.text:
                click.echo(text)
            if recorder.name:
                _print(recorder)
        for stream, text in (("stdout", worker.stdout), ("stderr", worker.stderr)):
            if text:
                click.echo(f"{stream} of the submission:\n{text}")


def _print(recorder: Recorder) -> None:
    click.echo(f"{recorder.name} was called with")
    for i, argument in enumerate(recorder.arguments, start=1):
        click.echo(f"  argument {i}: {_shown(argument)}")
    click.echo(f"answer: {_shown(recorder.answer)}")
    wide = [x.double() if isinstance(x, Tensor) and x.is_floating_point() else x for x in recorder.arguments]
    with torch.no_grad():
        click.echo(f"reference: {_shown(getattr(references, recorder.name)(*wide))}")


def _shown(value: Any) -> str:
    if not isinstance(value, Tensor):
        return repr(value)
    return f"{tuple(value.shape)} {value.dtype}\n{value.detach()}"
