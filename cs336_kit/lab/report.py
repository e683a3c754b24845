"""One call of attention step by step: what goes in, what becomes of it, where it goes wrong and what to do."""

from collections.abc import Iterator

import torch
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cs336_kit.lab.after_softmax import output_step, weights_step
from cs336_kit.lab.before_softmax import (
    inputs_step,
    mask_step,
    misfit,
    scaled_step,
    scores_step,
    with_boolean_mask,
)
from cs336_kit.lab.call import Call
from cs336_kit.lab.step import Step
from cs336_kit.lab.student import Student


def report(call: Call, student: Student) -> Iterator[RenderableType]:
    """Each step as soon as it is known, and at the end where NaN or infinity first appeared.

    Raises:
        click.ClickException: the student's code raises an error, or gives no tensor of the right shape.
    """
    yield Text(f"One call of run_scaled_dot_product_attention: {call.name}")
    first_bad = ""
    advice = 0
    for number, step in enumerate(_steps(call, student), start=1):
        source = f"  ({step.source})" if step.source else ""
        yield Text.assemble(f"\n{number} ", (step.title, "bold"), (source, "dim"))
        lines = Table.grid(padding=(0, 1))
        for fact in (*step.facts, *step.rows()):
            lines.add_row(" ", Text(fact))
        for line in step.advice:
            lines.add_row(arrow(), Text(line, "yellow"))
        yield Padding(lines, (0, 0, 0, 1), expand=False)
        advice += len(step.advice)
        if not step.finite and not first_bad:
            first_bad = f"step {number}, {step.title[0].lower()}{step.title[1:]}"
    yield Text(f"\nNaN or infinity first appears in {first_bad}." if first_bad else "\nNo NaN, no infinity.")
    yield Text("Look at the lines with →." if advice else "Nothing here looks wrong.")


def arrow() -> Text:
    """The arrow before a line that says what to do."""
    return Text("→", "yellow")


def _steps(call: Call, student: Student) -> Iterator[Step]:
    """The steps, each as soon as it is known; those that cannot be taken with such inputs are left out."""
    yield inputs_step(call)
    call, made = with_boolean_mask(call)
    if made:
        yield Step("The mask is not boolean", advice=[made])
    if call.mask is not None and call.mask.dtype != torch.bool:
        return
    if problem := misfit(call):
        yield Step("They do not fit together", advice=[problem])
        return
    yield scores_step(call)
    yield scaled_step(call)
    yield mask_step(call)
    weights = call.weights(student)
    yield weights_step(call, weights)
    yield output_step(call, weights, student.attention(call.Q, call.K, call.V, call.mask))
