"""One call of attention step by step: what goes in, what becomes of it, and what is wrong with the answer."""

import math
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import click
import torch
from jaxtyping import Bool, Float, jaxtyped
from rich.console import Console, Group, RenderableType
from rich.text import Text
from torch import Tensor

from cs336_kit.checking.board import Lines
from cs336_kit.engine.case import Case
from cs336_kit.engine.compare import dtype_name, place_of_largest
from cs336_kit.examination.silence import silence
from cs336_kit.lab.comparison import diagnose, set_beside_pytorch
from cs336_kit.lab.student import ADAPTER, Student, broadcast, make_call, read_tensor

OURS, YOURS = "this tool, in float64", "your code"
SMALL = 8  # rows and columns of a matrix whose numbers are printed
CONTRACT: dict[str, Any] = {
    "Q": Float[Tensor, "*#batch queries d_k"],
    "K": Float[Tensor, "*#batch keys d_k"],
    "V": Float[Tensor, "*#batch keys d_v"],
    "mask": Bool[Tensor, "*#batch #queries #keys"],
}

# Title, whose arithmetic it is, facts, a line each, and the numbers by name.
Step = tuple[str, str, list[str], dict[str, Tensor]]


def debug(Q: Any, K: Any, V: Any, mask: Any = None, *, attention: Callable[..., Tensor] | None = None) -> None:
    """Report one call of your attention, or of this one, step by step, as `cs336 debug` does.

    Q (..., queries, d_k), K (..., keys, d_k), V (..., keys, d_v) and mask are tensors or numpy arrays.

    Raises:
        click.ClickException: the function raises an error, or gives no tensor of the right shape.
    """
    given = {"Q": Q, "K": K, "V": V} | ({} if mask is None else {"mask": mask})
    call = make_call("in a notebook", {name: read_tensor(x) for name, x in given.items()})
    Console(highlight=False).print(Group(*report_call(call, Student(attention))))


def report_call(call: Case, student: Student) -> Iterator[RenderableType]:
    """Each step as soon as it is known, where NaN or infinity first appeared, and the diagnosis.

    A stored case has its right answer; that of any other call is PyTorch's.

    Raises:
        click.ClickException: the student's code raises an error, or gives no tensor of the right shape.
    """
    yield Text(f"One call of {ADAPTER}: {call.name}")
    misfit, first_bad = explain_misfit(call), ""
    case = call if call.expected or misfit else set_beside_pytorch(call)
    try:
        steps = chain([_look_at_inputs(call)], () if misfit else _take_steps(call, student))
        for place, (title, source, facts, numbers) in enumerate(steps, start=1):
            yield Text.assemble(f"\n{place} ", (title, "bold"), (f"  ({source})" if source else "", "dim"))
            yield Lines([*facts, *_write_matrices(numbers)], margin="   ")
            # Scores of -inf are what a mask is for.
            if not (first_bad or title == "Mask" or all(x.isfinite().all() for x in numbers.values())):
                first_bad = f"step {place}, {title[0].lower()}{title[1:]}"
    except click.ClickException:
        yield from diagnose(student, [case]).explain()  # of the error that the caller prints
        yield Text("")
        raise
    yield Text(f"\nNaN or infinity first appears in {first_bad}." if first_bad else "\nNo NaN, no infinity.")
    right = "the stored one" if call.expected else "PyTorch's own, in float64"
    if misfit:
        yield Lines([f"→ {misfit}"], "yellow")
    elif first_bad.startswith("step 1,"):
        yield Text("Look at what made the inputs: with them, attention has no right answer.")
    elif (diagnosis := diagnose(student, [case], last_digits=bool(call.expected))).wrong:
        yield Text(f"Your answer is not {right}:\n")
        yield from diagnosis.tell()
    else:
        yield Text(f"Your answer is {right}. Nothing here looks wrong.")


def explain_misfit(call: Case) -> str:
    """Say why these cannot be arguments of attention; nothing if they can."""
    with jaxtyped("context"):  # in which each name of an axis has one size
        for name, x in call.inputs.items():
            contract = CONTRACT[name]
            if x is None or (x.numel() and isinstance(x, contract) and x.dtype in (call.Q.dtype, torch.bool)):
                continue
            of_mask = "boolean, True = may attend (`mask == 0` if yours is added to the scores)"
            dtype = of_mask if name == "mask" else "of one floating-point dtype with Q"
            shape = contract.dim_str.replace("*#batch", "...").replace("#", "").replace(" ", ", ")
            return (
                f"{name} {tuple(x.shape)} {dtype_name(x.dtype)} does not fit what is before it: it should be {dtype}, "
                f"and of the shape ({shape}). Is it transposed, or of another sequence?"
            )
    return ""


def _look_at_inputs(call: Case) -> Step:
    tensors = {name: x for name, x in call.inputs.items() if x is not None}
    width = max(len(str(tuple(x.shape))) for x in tensors.values())
    facts = [
        f"{name:<4}  {tuple(x.shape)!s:<{width}}  {dtype_name(x.dtype)}, {_describe_span(x)}"
        for name, x in tensors.items()
    ]
    return "Inputs", "", facts, {name: tensors[name] for name in "QKV"}


def _take_steps(call: Case, student: Student) -> Iterator[Step]:
    """The steps after the first, each as soon as it is known."""
    Q, K, V, mask = call.Q, call.K, call.V, call.mask
    dtype, limit = dtype_name(Q.dtype), torch.finfo(Q.dtype).max
    scores = Q.double() @ K.double().mT
    fact = f"the largest {dtype} is {limit:.4g}"
    if scores.abs().amax() > limit:
        fact += ": these have to be computed in float32"
    spread = f"standard deviation {scores.std(correction=0):.4g}"
    yield "Scores, Q Kᵀ", OURS, [_describe_span(scores), spread, fact], {"": scores}

    root, limit = math.sqrt(Q.shape[-1]), math.log(limit)
    scaled = scores / root
    fact = f"exp() overflows in {dtype} above {limit:.4g}"
    if scaled.amax() > limit:
        fact += ": the maximum of each row has to go first"
    title = f"Scaled scores, divided by √{Q.shape[-1]} = {root:.4g}"
    spread = f"standard deviation {scaled.std(correction=0):.4g}"
    yield title, OURS, [_describe_span(scaled), spread, fact], {"": scaled}

    allowed = torch.ones_like(scaled, dtype=torch.bool) if mask is None else mask
    allowed = allowed.expand(*broadcast(Q, K, V, mask), *scaled.shape[-2:])
    left = allowed.sum(-1)
    facts = [f"leaves {int(left.amin())} to {int(left.amax())} of {K.shape[-2]} keys to a query"]
    if not left.all():
        facts.append(
            f"a query may attend to nothing, first at {place_of_largest((left == 0).byte())}: its answer is zeros"
        )
    yield "Mask", "", facts, {"": scaled.masked_fill(~allowed, -math.inf)}

    with silence():  # the output below is the call that was asked for
        weights = student.weights(Q, K, mask).double().expand(allowed.shape)
    facts = [_describe_span(weights)]
    if weights.isfinite().all():
        low, high = (f"{x:.4g}" for x in weights.sum(-1).aminmax())
        facts.append(f"rows sum to {low}" if low == high else f"rows sum to {low} up to {high}")
        if not allowed.all():
            facts.append(f"hidden keys have at most {weights[~allowed].abs().amax():.4g}")
        entropy = torch.special.entr(weights.clamp(min=0.0)).sum(-1).mean()
        alike = left.clamp(min=1).log().mean()
        facts.append(f"entropy of a row {entropy:.3g} on average, of {alike:.3g} if all its keys were alike")
    yield "Weights", f"{YOURS}, with the identity as V", facts, {"": weights}

    output = student.attention(Q, K, V, mask)
    yield "Output", YOURS, [f"{tuple(output.shape)} {dtype_name(output.dtype)}, {_describe_span(output)}"], {"": output}


def _write_matrices(numbers: dict[str, Tensor]) -> Iterator[str]:
    """The first matrix of each, as a reader works it on paper, if it is small."""
    for name, x in numbers.items():
        if x.ndim < 2 or not x.numel() or max(x.shape[-2:]) > SMALL:
            continue
        batch = x.shape[:-2]
        if of := f"{name} at {[0] * len(batch)}".strip() if batch.numel() > 1 else name:
            yield f"{of}:"
        for row in x.reshape(-1, *x.shape[-2:])[0].tolist():
            yield "".join(f"{x:9.4f}" if abs(x) < 1000 else f"{x:9.1e}" for x in row)


def _describe_span(x: Tensor) -> str:
    """The smallest and the largest finite number, and before them the counts of NaN and infinity."""
    if x.dtype == torch.bool:
        return f"{x.double().mean():.0%} True"
    finite, bad = x[x.isfinite()], ~x.isfinite()
    bounds = f"from {finite.amin():.4g} to {finite.amax():.4g}" if finite.numel() else "nothing finite"
    if not bad.any():
        return bounds
    first = place_of_largest(bad.byte())
    return f"{int(x.isnan().sum())} NaN and {int(x.isinf().sum())} infinite, first at {first}; else {bounds}"
