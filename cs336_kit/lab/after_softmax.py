"""The steps that need the student's attention: its weights, when the values are the identity, and its output."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from cs336_kit.lab.call import Call
from cs336_kit.lab.step import Step, dtype_name, first, is_finite, span

YOURS = "your code"

# A mean entropy below this share of the largest possible: nearly all weight lies on one key.
SATURATED = 0.1
# Smaller weights do not tell the scale of the scores.
TELLING = 1e-4
# The share of the weights' logarithms that the scores may leave unexplained: rounding.
MISFIT = 0.01


def weights_step(call: Call, weights: Tensor) -> Step:
    allowed = call.allowed
    step = Step(
        "Weights", f"{YOURS}, with the identity as V", [span(weights)], finite=is_finite(weights), numbers={"": weights}
    )
    if not step.finite:
        step.advice += [*_where_it_begins(call, ~weights.isfinite()), *_overflow(call)]
        return step
    nothing = max(1e-4, 16 * torch.finfo(call.Q.dtype).eps)  # what rounding may leave of a weight
    sums = weights.sum(-1)
    low, high = f"{sums.amin():.4g}", f"{sums.amax():.4g}"
    step.facts.append(f"rows sum to {low}" if low == high else f"rows sum to {low} up to {high}")
    if (wrong := (sums - allowed.any(-1).double()).abs() > nothing).any():
        right = "0, as it may attend to nothing" if not allowed.any(-1)[wrong][0] else "1"
        step.advice.append(
            f"The row {first(wrong)} sums to {sums[wrong][0]:.4g} but should sum to {right}: normalise over the "
            "keys, the last axis, and after the mask."
        )
    heavy = weights.abs() > nothing
    if (heavy & ~allowed).any():
        step.advice.append(
            f"The hidden key {first(heavy & ~allowed)} has weight: set its score to -inf before the softmax."
            if (heavy & allowed).any()
            else "Only hidden keys have weight: is the mask taken the wrong way round? True = may attend."
        )
    if (negative := weights < -nothing).any():
        step.advice.append(f"The weight {first(negative)} is negative: exp() gives none.")
    for facts, advice in (_entropy(call, weights), _divisor(call, weights)):
        step.facts += facts
        step.advice += advice
    if step.advice:
        step.advice += _overflow(call)
    return step


def _overflow(call: Call) -> Iterator[str]:
    """Name a possible cause of wrong weights: a score that the dtype of the inputs cannot hold."""
    largest, dtype = float(call.scores.abs().amax()), dtype_name(call.Q)
    if torch.finfo(call.Q.dtype).max < largest < math.inf:
        yield f"A score of {largest:.4g} is infinite in {dtype}: compute in float32, return {dtype}."


def _where_it_begins(call: Call, bad: Tensor) -> Iterator[str]:
    """Name the step from which on some weights are not finite."""
    scaled, without = call.scaled.expand_as(bad), ~call.allowed.any(-1)
    if (unexplained := bad & (scaled.isfinite().all(-1) & ~without)[..., None]).any():
        yield (
            f"NaN or infinity, first {first(unexplained)}, where the scores are finite: it begins in the softmax. Does "
            "it subtract the maximum of each row, and is that the row's own?"
        )
    elif (explained := bad & ~without[..., None]).any():
        yield f"NaN or infinity, first {first(explained)}: only in rows whose scores are not finite, see above."
    else:
        yield f"NaN or infinity, first {first(bad)}: only in rows that may attend to nothing. Give zeros there."


# Facts, and advice.
Lines = tuple[list[str], list[str]]


def _entropy(call: Call, weights: Tensor) -> Lines:
    """Measure how evenly rows spread their weight, where they have a choice."""
    allowed = call.allowed
    choice = allowed.sum(-1) > 1
    if not choice.any():
        return ["no row has more than one key to choose from"], []
    most = allowed.sum(-1)[choice].log().mean()
    yours, right = (_entropy_of(x)[choice].mean() for x in (weights, torch.softmax(call.hidden.expand_as(weights), -1)))
    facts = [f"entropy of a row {yours:.3g} on average, of {most:.3g} if all its keys were alike"]
    if yours > SATURATED * most:
        return facts, []
    if right <= SATURATED * most:
        return [
            *facts,
            "nearly all weight of a row lies on one key: the gradient of softmax all but vanishes there",
        ], []
    return facts, [
        "Nearly all weight of a row lies on one key. Divided by √d_k, the scores would give an entropy of "
        f"{right:.3g}: look at the scale."
    ]


def _entropy_of(weights: Tensor) -> Tensor:
    return torch.special.entr(weights.clamp(min=0.0)).sum(-1)


def _divisor(call: Call, weights: Tensor) -> Lines:
    """By what the scores were divided, from how the logarithms of the weights of a row grow with its scores."""
    d_k = call.Q.shape[-1]
    telling = call.allowed & (weights > TELLING)
    scores = _centred(call.scores.expand_as(weights), telling)
    logs = _centred(weights.clamp(min=TELLING).log(), telling)
    if scores.square().sum() / d_k <= telling.sum() * (16 * torch.finfo(call.Q.dtype).eps) ** 2:
        return ["too few weights differ to tell what the scores were divided by"], []
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


def output_step(call: Call, weights: Tensor, output: Tensor) -> Step:
    fact = f"{tuple(output.shape)} {dtype_name(output)}, {span(output)}"
    step = Step("Output", YOURS, [fact], finite=is_finite(output), numbers={"": output})
    if output.dtype != call.Q.dtype:
        step.advice.append(f"It should be {dtype_name(call.Q)}, as Q is: end with .to(Q.dtype).")
    sums = weights @ call.V.double()
    if not is_finite(sums):
        return step
    tolerance = max(1e-5, 16 * torch.finfo(call.Q.dtype).eps) * float(call.V.abs().amax())
    if not step.finite:
        step.advice.append(f"NaN or infinity {first(~output.isfinite())}, though the weights and V are finite.")
    elif (wrong := (sums - output).abs() > tolerance).any():
        step.advice.append(
            f"It is not the weights above times V, first {first(wrong)}: {output[wrong][0]:.4g} and not "
            f"{sums[wrong][0]:.4g}. Is there dropout, or is it another V?"
        )
    return step
