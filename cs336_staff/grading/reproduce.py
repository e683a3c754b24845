"""One test of one submission again, with everything that students are not shown."""

from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor

from cs336_staff.authoring import references
from cs336_staff.grading.course import find_checked_root
from cs336_staff.grading.suite import load_graded_suite
from cs336_staff.sandbox.confinement import Layer, start
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
    recorder = Recorder(root / "adapters.py")
    graded = load_graded_suite(root, recorder)
    tests = [test for test in graded.suite.tests if name in (test.name, test.function)]
    if not tests:
        raise click.UsageError(f"no test is called {name}; results.json and the gradebook have the names")
    with start(layer) as sandbox, Worker(sandbox, take_in(path), graded.limits) as worker:
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
