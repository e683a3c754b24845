"""Measure which gradients reach the queries, keys and values, and what becomes of them when scores are large."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cs336_kit.lab.after_softmax import weights_step
from cs336_kit.lab.bad_input import BadInput
from cs336_kit.lab.call import Call
from cs336_kit.lab.student import Attention, Student

# Each figure is a mean over this many draws.
DRAWS = 64
WIDTHS = (1, 4, 16, 64, 256, 1024)
MASKS = ("causal", "padding", "empty row")

# For each of Q, K and V a number for each position.
Norms = dict[str, Float[Tensor, " position"]]


@dataclass(frozen=True)
class Saturation:
    """The effect of softmax on the scores of random queries and keys.

    Args:
        largest_weight: of a query, on average.
        gradient: the norm of the gradient that reaches the scores of a query, on average.
    """

    largest_weight: float
    gradient: float


@dataclass(frozen=True)
class OneOutput:
    """The dependence of one position of the output on the inputs, in one draw.

    Args:
        query: the position.
        weights: that it gives to each key.
        norms: of the gradients, for a gradient of length 1 of the output.
    """

    query: int
    weights: Float[Tensor, " position"]
    norms: Norms


@dataclass(frozen=True)
class Flow:
    """All that was measured.

    Args:
        mask: the name of the mask.
        visible: the mask, True where a query may attend to a key.
        faults: what is wrong with the weights, a line each; where there is anything, nothing may be explained.
        norms: the norms of the gradients of Q, K and V by position, without a mask and with it.
        saturation: for each d_k, with the division by its root and without; empty if the weights are wrong.
        one_output: of the query that was asked for.
    """

    mask: str
    visible: Bool[Tensor, "queries keys"]
    faults: Sequence[str]
    norms: list[Norms]
    saturation: dict[int, list[Saturation]]
    one_output: OneOutput | None


def measure_flow(student: Student, length: int, d_k: int, mask: str, query: int | None, seed: int) -> Flow:
    """Measure it all.

    Args:
        student: whose attention it is.
        length: number of positions.
        d_k: length of queries, keys and values.
        mask: one of MASKS.
        query: the position of the output to look at more closely, if any.
        seed: of the draws.

    Raises:
        BadInput: there is no such mask or position.
        click.ClickException: the student's code raises an error, or gives no tensor of the right shape.
    """
    if mask not in MASKS:
        raise BadInput(f"there is no mask {mask}: choose one of {', '.join(MASKS)}")
    if query is not None and not 0 <= query < length:
        raise BadInput(f"there is no position {query}: choose one from 0 to {length - 1}")
    visible = torch.ones(length, length, dtype=torch.bool)
    if mask == "causal":
        visible = visible.tril()
    elif mask == "padding":
        visible[:, -(length // 4 or 1) :] = False
    else:
        visible[-1] = False
    faults: list[str] = []
    for each in (None, visible):
        Q, K, V, _ = _drawn(length, d_k, seed)
        call = Call("", Q, K, V, each)
        faults += weights_step(call, call.weights(student)).advice
    attention = student.differentiable
    with student.in_words():
        norms = [gradient_norms(attention, length, d_k, each, seed) for each in (None, visible)]
        saturations = {
            width: [saturation(attention, length, width, scaled, seed) for scaled in (True, False)]
            for width in (() if faults else WIDTHS)
        }
        one_output = None if query is None else _one_output(student, length, d_k, visible, query, seed)
    return Flow(mask, visible, list(dict.fromkeys(faults)), norms, saturations, one_output)


def gradient_norms(
    attention: Attention, length: int, d_k: int, mask: Bool[Tensor, "queries keys"] | None, seed: int
) -> Norms:
    """The norms of the gradients of Q, K and V at each position.

    Q, K, V and the gradient that comes back to the output are drawn from a normal distribution.

    Args:
        attention: the student's.
        length: number of positions.
        d_k: length of queries, keys and values.
        mask: True where a query may attend to a key.
        seed: of the draws.
    """
    Q, K, V, output_gradient = _drawn(length, d_k, seed)
    tensors = {"Q": Q.requires_grad_(), "K": K.requires_grad_(), "V": V.requires_grad_()}
    gradients = _gradients(attention(Q, K, V, mask), output_gradient, list(tensors.values()))
    return {name: gradient.norm(dim=-1).mean(dim=0) for name, gradient in zip(tensors, gradients, strict=True)}


def _one_output(
    student: Student, length: int, d_k: int, mask: Bool[Tensor, "queries keys"], query: int, seed: int
) -> OneOutput:
    """In the first draw: a mean over draws would hide that the gradient of a value is its weight."""
    Q, K, V, output_gradient = (x[0] for x in _drawn(length, d_k, seed))
    tensors = {"Q": Q.requires_grad_(), "K": K.requires_grad_(), "V": V.requires_grad_()}
    direction = torch.zeros_like(output_gradient)
    direction[query] = output_gradient[query] / output_gradient[query].norm()
    gradients = _gradients(student.differentiable(Q, K, V, mask), direction, list(tensors.values()))
    norms = {name: gradient.norm(dim=-1) for name, gradient in zip(tensors, gradients, strict=True)}
    return OneOutput(query, student.weights(Q.detach(), K.detach(), mask)[query], norms)


def saturation(attention: Attention, length: int, d_k: int, scaled: bool, seed: int) -> Saturation:
    """Measure what becomes of the scores q · k, divided by √d_k or not, of `length` queries and keys.

    The scores are handed to attention as queries: when the keys are the identity, q · k is an entry of the query. And
    when the values are the identity, the output is the weights.
    """
    generator = torch.Generator().manual_seed(seed)
    queries, keys = torch.randn(2, DRAWS, length, d_k, generator=generator)
    scores = (queries @ keys.mT / (math.sqrt(d_k) if scaled else 1.0)).requires_grad_()
    identity = torch.eye(length).expand(DRAWS, -1, -1)
    weights = attention(scores * math.sqrt(length), identity, identity, None)
    (gradient,) = _gradients(weights, torch.randn(weights.shape, generator=generator), [scores])
    return Saturation(weights.amax(dim=-1).mean().item(), gradient.norm(dim=-1).mean().item())


def _drawn(length: int, d_k: int, seed: int) -> Tensor:
    """Q, K, V and the gradient of the output, each (draw, position, feature)."""
    return torch.randn(4, DRAWS, length, d_k, generator=torch.Generator().manual_seed(seed))


def _gradients(output: Tensor, output_gradient: Tensor, leaves: list[Tensor]) -> tuple[Tensor, ...]:
    """The gradients of the leaves; zeros for one that the output does not depend on."""
    loss = (output * output_gradient).sum()  # given a gradient, autograd imports sympy, which takes half a second
    return torch.autograd.grad(loss, leaves, materialize_grads=True)
