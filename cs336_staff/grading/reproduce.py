"""One test of one submission again, with everything that students are not shown."""

from dataclasses import replace
from typing import Any

import click
import torch
from torch import Tensor

from cs336_staff.authoring import references
from cs336_staff.grading.names import check_among
from cs336_staff.grading.suite import GradedSuite
from cs336_staff.sandbox.confinement import Sandbox
from cs336_staff.sandbox.proxy import Adapters
from cs336_staff.sandbox.submission import Submission
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


def reproduce_test(graded: GradedSuite, sandbox: Sandbox, submission: Submission, name: str) -> None:
    """Run the test or test function `name` of a submission and print its result and its last call.

    Of a test that did not pass, the last call is the one that it failed on; of a property test, the smallest one.

    Raises:
        click.UsageError: no test has this name.
        SandboxError: it cannot be run.
    """
    tests = [test for test in graded.suite.tests if name in (test.name, test.function)]
    if not tests:
        check_among(name, [test.name for test in graded.suite.tests])
    graded.suite.calls.adapters = recorder = Recorder(graded.suite.root / "adapters.py")
    with Worker(sandbox, submission, graded.limits) as worker:
        for result in replace(graded, proxy=recorder).run(worker, tests):
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
