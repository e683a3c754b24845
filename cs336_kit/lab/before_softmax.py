"""What goes into one call of attention, and the scores that softmax gets.

The scores cannot be had from outside: they are this tool's own arithmetic, in float64, and the steps say so.
"""

import math

import torch
from torch import Tensor

from cs336_kit.lab.call import Call
from cs336_kit.lab.step import Step, dtype_name, first, is_finite, span, span_and_spread

OURS = "this tool, in float64"


def inputs_step(call: Call) -> Step:
    step = Step("Inputs", finite=all(is_finite(x) for x in call.tensors.values()))
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


def misfit(call: Call) -> str:
    """Why these are no arguments of attention, and what to do, or nothing."""
    if any(x.numel() == 0 for x in call.tensors.values()):
        return "One of them is empty: there is nothing to look at."
    if any(x.ndim < 2 for x in call.tensors.values()):
        return "Each needs two dimensions at least, (positions, features): add the one that is missing."
    if not all(x.is_floating_point() for x in (call.Q, call.K, call.V)):
        return "Q, K and V should be of a floating-point dtype: convert them with .float()."
    if not call.Q.dtype == call.K.dtype == call.V.dtype:
        return "Q, K and V should have one dtype: convert them with .to(Q.dtype)."
    if call.mask is not None and call.mask.dtype != torch.bool:
        return f"The mask is {dtype_name(call.mask)}, and should be bool, True = may attend: convert it, as mask > 0."
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


def scores_step(call: Call, scores: Tensor) -> Step:
    step = Step("Scores, Q Kᵀ", OURS, [span_and_spread(scores)], finite=is_finite(scores))
    dtype, limit = dtype_name(call.Q), torch.finfo(call.Q.dtype).max
    step.facts.append(f"the largest {dtype} is {limit:.4g}")
    if step.finite and (largest := float(scores.abs().amax())) > limit:
        step.advice.append(f"A score of {largest:.4g} is infinite in {dtype}: compute in float32, return {dtype}.")
    return step


def scaled_step(call: Call, scaled: Tensor) -> Step:
    root = math.sqrt(call.Q.shape[-1])
    title = f"Scaled scores, divided by √{call.Q.shape[-1]} = {root:.4g}"
    step = Step(title, OURS, [span_and_spread(scaled)], finite=is_finite(scaled))
    limit = math.log(torch.finfo(call.Q.dtype).max)
    step.facts.append(f"exp() overflows in {dtype_name(call.Q)} above {limit:.4g}")
    if step.finite and float(scaled.amax()) > limit:
        step.advice.append("exp() of these overflows: subtract the maximum of each row before it, over the keys.")
    return step


def mask_step(call: Call, allowed: Tensor) -> Step:
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
            f"A query may attend to nothing, first {first(left == 0)}: its answer should be zeros. A softmax "
            "over -inf alone is 0/0, NaN: give zeros instead. If every query should see something, look at the mask."
        )
    if allowed.shape[-2] == keys > 1 and torch.equal(allowed, torch.ones_like(allowed).triu(1)):
        step.advice.append("Each query sees later keys alone: is the causal mask inverted? True = may attend.")
    return step
