"""One call of attention step by step: what goes in, what becomes of it, and what is wrong with the answer."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

import click
import torch
from rich.console import RenderableType
from rich.text import Text
from torch import Tensor

from cs336_kit.checking.board import Lines
from cs336_kit.engine.compare import dtype_name
from cs336_kit.lab.call import Call
from cs336_kit.lab.diagnosis import diagnose
from cs336_kit.lab.student import Student

OURS, YOURS = "this tool, in float64", "your code"
SMALL = 8  # rows and columns of a matrix whose numbers are printed
WIDTH = 9  # columns of the terminal for a number

# What is added to a score to hide a key is -inf, or a number so low that nothing is left of its weight.
ADDED = -50.0


@dataclass
class Step:
    """A step of the report.

    Args:
        title: what it is about.
        source: whose arithmetic it is.
        facts: a line each.
        finite: whether there is neither NaN nor infinity up to here.
        numbers: what there is or was computed, by name; the first matrix of each is printed if it is small.
    """

    title: str
    source: str = ""
    facts: list[str] = field(default_factory=list)
    finite: bool = True
    numbers: dict[str, Tensor] = field(default_factory=dict)

    def rows(self) -> Iterator[str]:
        """The numbers as a reader works them on paper, a line for each row."""
        for name, x in self.numbers.items():
            if x.ndim < 2 or not x.numel() or max(x.shape[-2:]) > SMALL:
                continue
            batch = x.shape[:-2]
            if of := f"{name} at {[0] * len(batch)}".strip() if batch.numel() > 1 else name:
                yield f"{of}:"
            for row in x.reshape(-1, *x.shape[-2:])[0].tolist():
                yield "".join(f"{x:{WIDTH}.4f}" if abs(x) < 1000 else f"{x:{WIDTH}.1e}" for x in row)


def report_call(call: Call, student: Student) -> Iterator[RenderableType]:
    """Each step as soon as it is known, where NaN or infinity first appeared, and the diagnosis.

    Raises:
        click.ClickException: the student's code raises an error, or gives no tensor of the right shape.
    """
    yield Text(f"One call of run_scaled_dot_product_attention: {call.name}")
    first_bad = ""
    inputs = _look_at_inputs(call)
    call, read = _make_mask_boolean(call)
    inputs.facts += read
    problem = _explain_misfit(call)
    try:
        for number, step in enumerate([inputs] if problem else chain([inputs], _take_steps(call, student)), start=1):
            source = f"  ({step.source})" if step.source else ""
            yield Text.assemble(f"\n{number} ", (step.title, "bold"), (source, "dim"))
            yield Lines((*step.facts, *step.rows()), margin="   ")
            if not step.finite and not first_bad:
                first_bad = f"step {number}, {step.title[0].lower()}{step.title[1:]}"
    except click.ClickException:
        yield from diagnose(student, [call.case]).explain()
        yield Text("")
        raise
    yield Text(f"\nNaN or infinity first appears in {first_bad}." if first_bad else "\nNo NaN, no infinity.")
    if problem:
        yield Lines([f"→ {problem}"], "yellow")
    elif all(map(_is_finite, (call.Q, call.K, call.V))):
        yield from _compare_answer(call, student)
    else:
        yield Text("Look at what made the inputs: with them, attention has no right answer.")


def _compare_answer(call: Call, student: Student) -> Iterator[RenderableType]:
    """Say whether the answer is the right one, and if not, what the examination finds."""
    diagnosis = diagnose(student, [call.case])
    right = "the stored one" if call.stored else "PyTorch's own, in float64"
    if diagnosis.passed:
        yield Text(f"Your answer is {right}. Nothing here looks wrong.")
        return
    yield Text(f"Your answer is not {right}:\n")
    yield from diagnosis.tell_failures()


def _take_steps(call: Call, student: Student) -> Iterator[Step]:
    """The steps after the first, each as soon as it is known."""
    dtype, d_k, limit = dtype_name(call.Q.dtype), call.Q.shape[-1], torch.finfo(call.Q.dtype).max
    fact, beyond = f"the largest {dtype} is {limit:.4g}", "these have to be computed in float32"
    yield _look_at_scores("Scores, Q Kᵀ", call.scores, call.scores.abs().amax(), limit, fact, beyond)
    title, limit = f"Scaled scores, divided by √{d_k} = {math.sqrt(d_k):.4g}", math.log(limit)
    fact, beyond = f"exp() overflows in {dtype} above {limit:.4g}", "the maximum of each row has to go first"
    yield _look_at_scores(title, call.scaled, call.scaled.amax(), limit, fact, beyond)
    yield _look_at_mask(call)
    yield _look_at_weights(call, call.weights(student))
    output = student.attention(call.Q, call.K, call.V, call.mask)
    facts = [f"{tuple(output.shape)} {dtype_name(output.dtype)}, {_describe_span(output)}"]
    yield Step("Output", YOURS, facts, _is_finite(output), {"": output})


def _look_at_inputs(call: Call) -> Step:
    numbers = {"Q": call.Q, "K": call.K, "V": call.V}
    step = Step("Inputs", finite=all(map(_is_finite, numbers.values())), numbers=numbers)
    width = max(len(str(tuple(x.shape))) for x in call.tensors.values())
    for name, x in call.tensors.items():
        step.facts.append(f"{name:<4}  {tuple(x.shape)!s:<{width}}  {dtype_name(x.dtype)}, {_describe_span(x)}")
    return step


def _make_mask_boolean(call: Call) -> tuple[Call, list[str]]:
    """The call with a mask that is True where a query may attend, and a line on what was made of numbers, if any were.

    A mask whose numbers leave open what it means stays as it is.
    """
    mask = call.mask
    if mask is None or mask.dtype == torch.bool or not mask.any():
        return call, []
    other = mask[mask != 0]
    if (other == 1).all():
        call = replace(call, mask=mask.bool())
        made = "it holds 1 and 0, and the steps below use `mask.bool()`. If 1 means hidden, it is `mask == 0`."
    elif (other <= ADDED).all():
        call = replace(call, mask=mask == 0)
        made = "it looks like one that is added to the scores, and the steps below use `mask == 0`."
    else:
        return call, []
    return call, [f"The mask is {dtype_name(mask.dtype)}, and should be bool, True = may attend: {made}"]


def _explain_misfit(call: Call) -> str:
    """Say why these cannot be arguments of attention, and what to do; nothing if they can."""
    if any(x.numel() == 0 for x in call.tensors.values()):
        return "One of them is empty: there is nothing to look at."
    if call.mask is not None and call.mask.ndim < 2:
        shape = tuple(call.mask.shape)
        return f"The mask has the shape {shape}: it needs two axes, (queries, keys), as mask[None] has for all queries."
    if call.mask is not None and call.mask.dtype != torch.bool:
        return (
            f"The mask is {dtype_name(call.mask.dtype)}, and should be bool, True = may attend: its numbers do not say "
            "which keys a query may attend to."
        )
    if any(x.ndim < 2 for x in call.tensors.values()):
        return "Each needs two dimensions at least, (positions, features): add the one that is missing."
    if not all(x.is_floating_point() for x in (call.Q, call.K, call.V)):
        return "Q, K and V should be of a floating-point dtype: convert them with .float()."
    if not call.Q.dtype == call.K.dtype == call.V.dtype:
        return "Q, K and V should have one dtype: convert them with .to(Q.dtype)."
    (queries, d_k), (keys, d_k_of_K), (values, _) = (x.shape[-2:] for x in (call.Q, call.K, call.V))
    if d_k != d_k_of_K:
        return f"Q has d_k {d_k}, K has {d_k_of_K}: they should be equal. Is one of them transposed?"
    if keys != values:
        return f"K has {keys} keys, V has {values}: each key needs one value. Are they of the same sequence?"
    if call.mask is not None and any(
        m not in (1, n) for m, n in zip(call.mask.shape[-2:], (queries, keys), strict=True)
    ):
        return f"The mask should end in (queries, keys) = ({queries}, {keys}), or 1 for either. Is it transposed?"
    try:
        call.batch  # noqa: B018 (it raises)
    except ValueError:
        return "Their leading dimensions do not broadcast: make them equal, or 1 where one serves all."
    return ""


def _look_at_scores(title: str, scores: Tensor, largest: Tensor, limit: float, fact: str, beyond: str) -> Step:
    """Step with the scores; `beyond` is said if the largest of them is above the limit."""
    finite = _is_finite(scores)
    if finite and float(largest) > limit:
        fact = f"{fact}: {beyond}"
    return Step(title, OURS, [_describe_spread(scores), fact], finite, {"": scores})


def _look_at_mask(call: Call) -> Step:
    allowed = call.allowed
    keys = allowed.shape[-1]
    if call.mask is None:
        return Step("Mask", facts=[f"none: every query may attend to all {keys} keys"])
    left = allowed.sum(-1)
    step = Step("Mask", facts=[f"leaves {int(left.amin())} to {int(left.amax())} of {keys} keys to a query"])
    step.numbers = {"": call.hidden}
    step.facts.append(f"{left.double().mean():.3g} on average; nothing to {int((left == 0).sum())} of {left.numel()}")
    if allowed.all():
        step.facts.append("it hides nothing")
    if (left == 0).any():
        step.facts.append(f"a query may attend to nothing, first {_find_first(left == 0)}: its answer is zeros")
    if allowed.shape[-2] == keys > 1 and torch.equal(allowed, torch.ones_like(allowed).triu(1)):
        step.facts.append("each query sees later keys alone: is the causal mask inverted? True = may attend.")
    return step


def _look_at_weights(call: Call, weights: Tensor) -> Step:
    facts = [_describe_span(weights)]
    step = Step("Weights", f"{YOURS}, with the identity as V", facts, _is_finite(weights), {"": weights})
    if not step.finite:
        return step
    sums = weights.sum(-1)
    low, high = f"{sums.amin():.4g}", f"{sums.amax():.4g}"
    facts.append(f"rows sum to {low}" if low == high else f"rows sum to {low} up to {high}")
    if not call.allowed.all():
        facts.append(f"hidden keys have at most {weights[~call.allowed].abs().amax():.4g}")
    keys = call.allowed.sum(-1)
    if (choice := keys > 1).any():
        entropy = torch.special.entr(weights.clamp(min=0.0)).sum(-1)[choice].mean()
        most = keys[choice].log().mean()
        facts.append(f"entropy of a row {entropy:.3g} on average, of {most:.3g} if all its keys were alike")
    return step


def _describe_span(x: Tensor) -> str:
    """The smallest and the largest finite number; before them the counts of NaN and infinity, if there are any."""
    if x.dtype == torch.bool:
        return f"{x.double().mean():.0%} True"
    finite = x[x.isfinite()]
    bounds = f"from {finite.amin():.4g} to {finite.amax():.4g}" if finite.numel() else "nothing finite"
    bad = ~x.isfinite()
    if not bad.any():
        return bounds
    return f"{int(x.isnan().sum())} NaN and {int(x.isinf().sum())} infinite, first {_find_first(bad)}; else {bounds}"


def _describe_spread(x: Tensor) -> str:
    """The same, and how far the numbers lie apart."""
    return f"{_describe_span(x)}, standard deviation {x[x.isfinite()].std(correction=0):.4g}"


def _is_finite(x: Tensor) -> bool:
    return bool(x.isfinite().all())


def _find_first(found: Tensor) -> str:
    """Say where `found` is True for the first time."""
    return f"at {found.nonzero()[0].tolist()}"
