"""One call of attention step by step: what goes in, what becomes of it, where it goes wrong and what to do."""

import math
from collections.abc import Iterator

import torch
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cs336_kit.lab.after_softmax import output_step, weights_step
from cs336_kit.lab.before_softmax import inputs_step, mask_step, misfit, scaled_step, scores_step
from cs336_kit.lab.call import Call
from cs336_kit.lab.step import Step
from cs336_kit.lab.student import Student


def print_report(call: Call, student: Student, console: Console) -> None:
    """Print each step as soon as it is known, and at the end where NaN or infinity first appeared.

    Raises:
        click.ClickException: the student's code raises an error, or gives no tensor of the right shape.
    """
    console.print(Text(f"One call of run_scaled_dot_product_attention: {call.name}"))
    first_bad = ""
    advice = 0
    for number, step in enumerate(_steps(call, student), start=1):
        source = f"  ({step.source})" if step.source else ""
        console.print(Text.assemble(f"\n{number} ", (step.title, "bold"), (source, "dim")))
        lines = Table.grid(padding=(0, 1))
        for fact in step.facts:
            lines.add_row(" ", Text(fact))
        for line in step.advice:
            lines.add_row(Text("→", "yellow"), Text(line, "yellow"))
        console.print(Padding(lines, (0, 0, 0, 1), expand=False))
        advice += len(step.advice)
        if not step.finite and not first_bad:
            first_bad = f"step {number}, {step.title[0].lower()}{step.title[1:]}"
    console.print(Text(f"\nNaN or infinity first appears in {first_bad}." if first_bad else "\nNo NaN, no infinity."))
    console.print(Text("Look at the lines with →." if advice else "Nothing here looks wrong."))


def _steps(call: Call, student: Student) -> Iterator[Step]:
    """The steps, each as soon as it is known; those that cannot be taken with such inputs are left out.

    Raises:
        click.ClickException: the student's code raises an error, or gives no tensor of the right shape.
    """
    yield inputs_step(call)
    if problem := misfit(call):
        yield Step("They do not fit together", advice=[problem])
        return
    scores = call.Q.double() @ call.K.double().mT
    scaled = scores / math.sqrt(call.Q.shape[-1])
    yield scores_step(call, scores)
    yield scaled_step(call, scaled)
    allowed = torch.ones_like(scaled, dtype=torch.bool) if call.mask is None else call.mask
    allowed = allowed.expand(*call.batch, *scaled.shape[-2:])
    yield mask_step(call, allowed)
    # Weights of one batch-like shape with the scores, whatever was to broadcast.
    K = call.K.expand(*call.batch, *call.K.shape[-2:])
    weights = student.weights(call.Q, K, call.mask).double()
    yield weights_step(call, weights, scaled.expand_as(weights), allowed)
    output = student.attention(call.Q, call.K, call.V, call.mask)
    yield output_step(call, weights, output)
