"""The inputs of one call of attention, and the scores that softmax should get."""

import math
from dataclasses import replace

import torch

from cs336_kit.lab.call import Call
from cs336_kit.lab.step import Step, dtype_name, first, is_finite, span, span_and_spread

OURS = "this tool, in float64"
# What is added to a score to hide a key is -inf, or a number so low that nothing is left of its weight.
ADDED = -50.0


def inputs_step(call: Call) -> Step:
    numbers = {"Q": call.Q, "K": call.K, "V": call.V}
    step = Step("Inputs", finite=all(map(is_finite, numbers.values())), numbers=numbers)
    shapes = {name: str(tuple(x.shape)) for name, x in call.tensors.items()}
    width = max(map(len, shapes.values()))
    for name, x in call.tensors.items():
        step.facts.append(f"{name:<4}  {shapes[name]:<{width}}  {dtype_name(x)}, {span(x)}")
    for name, x in (("Q", call.Q), ("K", call.K)):
        if not is_finite(x):
            step.advice.append(f"{name} is not finite, and rows that use it become NaN: look at what made {name}.")
    if not is_finite(call.V):
        step.advice.append("V is not finite: even a weight of 0 gives NaN, since 0 · NaN is NaN. Look at what made V.")
    return step


def with_boolean_mask(call: Call) -> tuple[Call, str]:
    """The call with a mask that is True where a query may attend, and what was made of another kind of mask.

    A mask whose numbers leave open what it means stays as it is.
    """
    mask = call.mask
    if mask is None or mask.dtype == torch.bool or not mask.numel():
        return call, ""
    came = f"The mask is {dtype_name(mask)}, and should be bool, True = may attend: "
    other = mask[mask != 0]
    if not other.numel():
        return call, came + "it holds only zeros. Is it `mask == 0`, which hides nothing, or `mask.bool()`?"
    if (other == 1).all():
        used = "the steps below use `mask.bool()`. If 1 means hidden, it is `mask == 0`."
        return replace(call, mask=mask.bool()), f"{came}it holds 1 and 0, and {used}"
    if (other <= ADDED).all():
        used = "it looks like one that is added to the scores, and the steps below use `mask == 0`."
        return replace(call, mask=mask == 0), came + used
    return call, came + "its numbers are neither 1 and 0 nor 0 and -inf. Which keys may a query attend to?"


def misfit(call: Call) -> str:
    """Say why these cannot be arguments of attention, and what to do; nothing if they can."""
    if any(x.numel() == 0 for x in call.tensors.values()):
        return "One of them is empty: there is nothing to look at."
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


def scores_step(call: Call) -> Step:
    scores = call.scores
    step = Step("Scores, Q Kᵀ", OURS, [span_and_spread(scores)], finite=is_finite(scores), numbers={"": scores})
    dtype, limit = dtype_name(call.Q), torch.finfo(call.Q.dtype).max
    step.facts.append(f"the largest {dtype} is {limit:.4g}")
    if step.finite and float(scores.abs().amax()) > limit:
        step.facts[-1] += ": these have to be computed in float32"
    return step


def scaled_step(call: Call) -> Step:
    scaled, root = call.scaled, math.sqrt(call.Q.shape[-1])
    title = f"Scaled scores, divided by √{call.Q.shape[-1]} = {root:.4g}"
    step = Step(title, OURS, [span_and_spread(scaled)], finite=is_finite(scaled), numbers={"": scaled})
    limit = math.log(torch.finfo(call.Q.dtype).max)
    step.facts.append(f"exp() overflows in {dtype_name(call.Q)} above {limit:.4g}")
    if step.finite and float(scaled.amax()) > limit:
        step.facts[-1] += ": the maximum of each row has to go first"
    return step


def mask_step(call: Call) -> Step:
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
        step.facts.append(f"a query may attend to nothing, first {first(left == 0)}: its answer is zeros")
    if allowed.shape[-2] == keys > 1 and torch.equal(allowed, torch.ones_like(allowed).triu(1)):
        step.advice.append("Each query sees later keys alone: is the causal mask inverted? True = may attend.")
    return step
