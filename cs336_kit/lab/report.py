"""One call of attention step by step: what goes in, what becomes of it, where it goes wrong and what to do.

The weights and the output are the student's. The scores before them cannot be had from outside: they are this tool's
own arithmetic, in float64, and the report says so.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from torch import Tensor

from cs336_kit.lab.call import Call
from cs336_kit.lab.student import Student

OURS = "this tool, in float64"
YOURS = "your code"

# A mean entropy below this share of the largest possible: nearly all weight lies on one key.
SATURATED = 0.1
# Smaller weights do not tell the scale of the scores.
TELLING = 1e-4
# The share of the weights' logarithms that the scores may leave unexplained: rounding.
MISFIT = 0.01


@dataclass
class Step:
    """A part of the report.

    Args:
        title: what it is about.
        source: whose arithmetic it is.
        facts: a line each.
        advice: what looks wrong and what to do, a line each.
        finite: whether there is neither NaN nor infinity up to here.
    """

    title: str
    source: str = ""
    facts: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    finite: bool = True


def print_report(call: Call, student: Student, console: Console) -> None:
    """Print each step as soon as it is known, and at the end where NaN or infinity first appeared.

    Raises:
        click.ClickException: the student's code raises an error, or gives no tensor of the right shape.
    """
    console.print(Text(f"One call of run_scaled_dot_product_attention: {call.name}"))
    first_bad = ""
    advice = 0
    for number, step in enumerate(steps(call, student), start=1):
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


def steps(call: Call, student: Student) -> Iterator[Step]:
    """The steps, each as soon as it is known; those that cannot be taken with such inputs are left out.

    Raises:
        click.ClickException: the student's code raises an error, or gives no tensor of the right shape.
    """
    yield _inputs(call)
    if misfit := _misfit(call):
        yield Step("They do not fit together", advice=[misfit])
        return
    scores = call.Q.double() @ call.K.double().mT
    scaled = scores / math.sqrt(call.Q.shape[-1])
    yield _scores(call, scores)
    yield _scaled(call, scaled)
    allowed = torch.ones_like(scaled, dtype=torch.bool) if call.mask is None else call.mask
    allowed = allowed.expand(*call.batch, *scaled.shape[-2:])
    yield _mask(call, allowed)
    # Weights of one batch-like shape with the scores, whatever was to broadcast.
    K = call.K.expand(*call.batch, *call.K.shape[-2:])
    weights = student.weights(call.Q, K, call.mask).double()
    yield _weights(call, weights, scaled.expand_as(weights), allowed)
    output = student.attention(call.Q, call.K, call.V, call.mask)
    yield _output(call, weights, output)


def _inputs(call: Call) -> Step:
    step = Step("Inputs", finite=all(_finite(x) for x in call.tensors.values()))
    shapes = {name: str(tuple(x.shape)) for name, x in call.tensors.items()}
    width = max(map(len, shapes.values()))
    for name, x in call.tensors.items():
        step.facts.append(f"{name:<4}  {shapes[name]:<{width}}  {_dtype(x)}, {_range(x)}")
    for name in ("Q", "K"):
        x = call.tensors[name]
        if not _finite(x):
            step.advice.append(f"{name} is not finite, and rows that use it become NaN: look at what made {name}.")
    if not _finite(call.V):
        step.advice.append("V is not finite: even a weight of 0 gives NaN, since 0 · NaN is NaN. Look at what made V.")
    return step


def _misfit(call: Call) -> str:
    """Why these are no arguments of attention, and what to do, or nothing."""
    if any(x.numel() == 0 for x in call.tensors.values()):
        return "One of them is empty: there is nothing to look at."
    if any(x.ndim < 2 for x in call.tensors.values()):
        return "Each needs two dimensions at least, (positions, features): add the one that is missing."
    dtypes = {name: _dtype(x) for name, x in call.tensors.items() if name != "mask"}
    if any(not x.is_floating_point() for name, x in call.tensors.items() if name != "mask"):
        return "Q, K and V should be of a floating-point dtype: convert them with .float()."
    if len(set(dtypes.values())) > 1:
        return "Q, K and V should have one dtype: convert them with .to(Q.dtype)."
    if call.mask is not None and call.mask.dtype != torch.bool:
        return (
            f"The mask is {_dtype(call.mask)}, and should be bool with True = may attend: convert it, as with mask > 0."
        )
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
    except RuntimeError:
        return "Their leading dimensions do not broadcast: make them equal, or 1 where one serves all."
    return ""


def _scores(call: Call, scores: Tensor) -> Step:
    step = Step("Scores, Q Kᵀ", OURS, [_spread(scores)], finite=_finite(scores))
    limit = torch.finfo(call.Q.dtype).max
    step.facts.append(f"the largest {_dtype(call.Q)} is {limit:.4g}")
    if step.finite and (largest := float(scores.abs().amax())) > limit:
        step.advice.append(
            f"A score of {largest:.4g} is infinite in {_dtype(call.Q)}: compute in float32, return {_dtype(call.Q)}."
        )
    return step


def _scaled(call: Call, scaled: Tensor) -> Step:
    root = math.sqrt(call.Q.shape[-1])
    step = Step(
        f"Scaled scores, divided by √{call.Q.shape[-1]} = {root:.4g}",
        OURS,
        [_spread(scaled)],
        finite=_finite(scaled),
    )
    limit = math.log(torch.finfo(call.Q.dtype).max)
    step.facts.append(f"exp() overflows in {_dtype(call.Q)} above {limit:.4g}")
    if step.finite and float(scaled.amax()) > limit:
        step.advice.append("exp() of these overflows: subtract the maximum of each row before it, over the keys.")
    return step


def _mask(call: Call, allowed: Tensor) -> Step:
    keys = allowed.shape[-1]
    if call.mask is None:
        return Step("Mask", facts=[f"none: every query may attend to all {keys} keys"])
    left = allowed.sum(-1)
    step = Step("Mask", facts=[f"leaves {int(left.amin())} to {int(left.amax())} of {keys} keys to a query"])
    step.facts.append(f"{left.double().mean():.3g} on average; nothing to {int((left == 0).sum())} of {left.numel()}")
    if allowed.all():
        step.facts.append("it hides nothing")
    if (left == 0).any():
        step.advice.append(
            f"A query may attend to nothing, first {_place(left == 0)}: its answer should be zeros. A softmax over "
            "-inf alone is 0/0, NaN: give zeros instead. If every query should see something, look at the mask."
        )
    if allowed.shape[-2] == keys > 1 and torch.equal(allowed, torch.ones_like(allowed).triu(1)):
        step.advice.append("Each query sees later keys alone: is the causal mask inverted? True = may attend.")
    return step


def _weights(call: Call, weights: Tensor, scaled: Tensor, allowed: Tensor) -> Step:
    step = Step("Weights", f"{YOURS}, with the identity as V", [_range(weights)], finite=_finite(weights))
    if not step.finite:
        step.advice.append(_where_it_begins(~weights.isfinite(), scaled, allowed))
        return step
    nothing = max(1e-4, 16 * torch.finfo(call.Q.dtype).eps)  # what rounding may leave of a weight
    sums = weights.sum(-1)
    step.facts.append(f"rows sum to {sums.amin():.4g} up to {sums.amax():.4g}")
    if (wrong := (sums - allowed.any(-1).double()).abs() > nothing).any():
        right = "0, as it may attend to nothing" if not allowed.any(-1)[wrong][0] else "1"
        step.advice.append(
            f"The row {_place(wrong)} sums to {sums[wrong][0]:.4g}, and should to {right}: normalise over the keys, "
            "the last axis, and after the mask."
        )
    if (hidden := (weights.abs() > nothing) & ~allowed).any():
        step.advice.append(f"The hidden key {_place(hidden)} has weight: set its score to -inf before the softmax.")
    if (negative := weights < -nothing).any():
        step.advice.append(f"The weight {_place(negative)} is negative: exp() gives none.")
    for facts, advice in (_entropy(weights, allowed), _divisor(call, weights, scaled, allowed)):
        step.facts += facts
        step.advice += advice
    return step


def _where_it_begins(bad: Tensor, scaled: Tensor, allowed: Tensor) -> str:
    """Why some weights are not finite, as far as the steps before them tell."""
    explained = ~scaled.isfinite().all(-1) | ~allowed.any(-1)
    if not (bad.any(-1) & ~explained).any():
        return f"NaN or infinity, first {_place(bad)}: only where the steps above give a reason for it."
    bad = bad & ~explained[..., None]
    return (
        f"NaN or infinity, first {_place(bad)}, where the scores are finite: it begins in the softmax. Does it "
        "subtract the maximum of each row, and is that the row's own?"
    )


# Facts, and advice.
Lines = tuple[list[str], list[str]]


def _entropy(weights: Tensor, allowed: Tensor) -> Lines:
    """How evenly rows spread their weight, where they have a choice."""
    choice = allowed.sum(-1) > 1
    if not choice.any():
        return ["no row has more than one key to choose from"], []
    entropy = torch.special.entr(weights.clamp(min=0.0)).sum(-1)[choice].mean()
    most = allowed.sum(-1)[choice].log().mean()
    facts = [f"entropy of a row {entropy:.3g} on average, of {most:.3g} if all its keys were alike"]
    if entropy > SATURATED * most:
        return facts, []
    return facts, [
        "Nearly all weight of a row lies on one key, where the gradient of softmax all but vanishes: are the scaled "
        "scores larger than you meant?"
    ]


def _divisor(call: Call, weights: Tensor, scaled: Tensor, allowed: Tensor) -> Lines:
    """By what the scores were divided, from how the logarithms of the weights of a row grow with its scores."""
    d_k = call.Q.shape[-1]
    telling = allowed & (weights > TELLING)
    scores = _centred(scaled * math.sqrt(d_k), telling)
    logs = _centred(weights.clamp(min=TELLING).log(), telling)
    if scores.square().sum() / d_k <= telling.sum() * (16 * torch.finfo(call.Q.dtype).eps) ** 2:
        return ["too few weights differ to tell by what the scores were divided"], []
    slope = (scores * logs).sum() / scores.square().sum()
    if (logs - slope * scores).square().sum() > MISFIT * logs.square().sum() or slope <= 0:
        return [], ["The weights do not grow with Q Kᵀ as a softmax over the keys does: what does your softmax get?"]
    divisor, root = float(1 / slope), math.sqrt(d_k)
    facts = [f"they are the softmax of Q Kᵀ divided by {divisor:.4g}; √d_k is {root:.4g}"]
    if math.isclose(divisor, root, rel_tol=0.03):
        return facts, []
    known = {1.0: "not divided at all", float(d_k): "d_k itself", float(d_k) ** 0.25: "√ of √d_k"}
    what = next((f", {name}," for value, name in known.items() if math.isclose(divisor, value, rel_tol=0.03)), "")
    return facts, [f"Divided by {divisor:.4g}{what} and not by √d_k = {root:.4g}: look at the scale."]


def _centred(x: Tensor, telling: Tensor) -> Tensor:
    """`x` less its mean over the telling places of each row; 0 elsewhere."""
    x = x.where(telling, 0.0)
    return (x - x.sum(-1, keepdim=True) / telling.sum(-1, keepdim=True).clamp(min=1)).where(telling, 0.0)


def _output(call: Call, weights: Tensor, output: Tensor) -> Step:
    step = Step("Output", YOURS, [f"{tuple(output.shape)} {_dtype(output)}, {_range(output)}"], finite=_finite(output))
    if output.dtype != call.Q.dtype:
        step.advice.append(f"It is {_dtype(output)}, and should be {_dtype(call.Q)}, as Q is: end with .to(Q.dtype).")
    sums = weights @ call.V.double()
    if not _finite(sums):
        return step
    tolerance = max(1e-5, 16 * torch.finfo(call.Q.dtype).eps) * float(call.V.abs().amax())
    if not step.finite:
        step.advice.append(f"NaN or infinity {_place(~output.isfinite())}, though the weights and V are finite.")
    elif (wrong := (sums - output).abs() > tolerance).any():
        step.advice.append(
            f"It is not the weights above times V, first {_place(wrong)}: {output[wrong][0]:.4g} and not "
            f"{sums[wrong][0]:.4g}. Is there dropout, or is it another V?"
        )
    return step


def _range(x: Tensor) -> str:
    """The smallest and the largest number; before them how many are none."""
    if x.dtype == torch.bool:
        return f"{x.double().mean():.0%} True"
    finite = x[x.isfinite()]
    bounds = f"from {finite.amin():.4g} to {finite.amax():.4g}" if finite.numel() else "nothing finite"
    if _finite(x):
        return bounds
    return (
        f"{int(x.isnan().sum())} NaN and {int(x.isinf().sum())} infinite, first {_place(~x.isfinite())}; else {bounds}"
    )


def _spread(x: Tensor) -> str:
    finite = x[x.isfinite()]
    return f"{_range(x)}, standard deviation {finite.std(correction=0):.4g}" if finite.numel() else _range(x)


def _finite(x: Tensor) -> bool:
    return bool(x.isfinite().all())


def _place(found: Tensor) -> str:
    """Where `found` is True for the first time."""
    return f"at {found.nonzero()[0].tolist()}"


def _dtype(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")
