"""`cs336 staff reproduce`: one test of one submission again, with everything that students are not shown."""

from pathlib import Path
from typing import Any, Literal

import click
import torch
from torch import Tensor

from cs336_kit.engine.assignment import find_root
from cs336_staff.authoring import references
from cs336_staff.grading.plan import SuiteError
from cs336_staff.grading.suite import Call, Suite, with_suite
from cs336_staff.sandbox import confinement as sandbox
from cs336_staff.sandbox.confinement import Layer, SandboxError
from cs336_staff.sandbox.submission import Refused, take_in
from cs336_staff.sandbox.worker import Worker


def reproduce(path: Path, name: str, layer: Layer | Literal["auto"]) -> None:
    """Run the test `name` of the submission in `path` and print its verdict and its last call.

    Of a test that did not pass, the last call is the one that it failed on; of a property test, the smallest one.
    """

    def use(suite: Suite) -> None:
        tests = [test for test in suite.planned if name in (test.name, test.test)]
        if not tests:
            raise click.UsageError(f"no test is called {name}; results.json and the gradebook have the names")
        with sandbox.start(layer) as box, Worker(box, take_in(path)) as worker:
            for test, verdict in suite.run(worker, tests):
                click.secho(f"{test.name}: {verdict.outcome}", bold=True)
                if verdict.details:
                    click.echo(verdict.details)
                if call := suite.adapters.last_call:
                    _print(call)
            for stream, text in (("stdout", worker.stdout), ("stderr", worker.stderr)):
                if text:
                    click.echo(f"{stream} of the submission:\n{text}")

    try:
        with_suite(find_root(Path.cwd()), use)
    except (SuiteError, SandboxError, Refused) as error:
        raise click.ClickException(str(error)) from None


def _print(call: Call) -> None:
    click.echo(f"{call.name} was called with")
    for i, argument in enumerate(call.arguments, start=1):
        click.echo(f"  argument {i}: {_shown(argument)}")
    click.echo(f"answer: {_shown(call.answer)}")
    wide = [x.double() if isinstance(x, Tensor) and x.is_floating_point() else x for x in call.arguments]
    with torch.no_grad():
        click.echo(f"reference: {_shown(getattr(references, call.name)(*wide))}")


def _shown(value: Any) -> str:
    if not isinstance(value, Tensor):
        return repr(value)
    return f"{tuple(value.shape)} {value.dtype}\n{value.detach()}"
