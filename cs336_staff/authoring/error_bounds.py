"""Bounds on how far a right program may round, for every adapter; they depend on the inputs alone.

The functions are those of `references.py`, to be read beside them. They compute with `Rounded` values: each carries the
largest error of a program that computes it in the precision of the inputs, with the sums in any order, the scale before
or after a product, the division before or after the values. Half precision is computed in float32, and then rounded.

An operation adds its own rounding, a few u times the *magnitudes* that go in, to the errors that it is handed: to first
order in the unit roundoff u, but for the exponential, since large scores are off by more than that allows. So x - x has
the error of x, and so has a gradient that is 0 because it cancels.

Source:
    Higham, Accuracy and Stability of Numerical Algorithms (2002), chapters 3 and 4.
    Blanchard, Higham and Higham, Accurately computing the log-sum-exp and softmax functions (2021).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.case import WEIGHTS
from cs336_staff.authoring import references

# Each operation may round this often beyond what is counted. A single product can be off by all that is counted; where
# many operations follow each other their worst cases never meet, and they need no other room.
HEADROOM = 1

# What is counted, in u, beside the terms of a sum. An exponential is good to an ulp, which is 2 u.
SCALE = 4  # once on the queries and once on the keys, each time by a factor that is itself rounded
EXPONENT = 3  # for exp2 a factor that is itself rounded, and the difference to the largest score
SOFTMAX = 5  # the exponentials above and below, and a division
RESCALE = 3  # what each block costs what is carried: a difference and its exponential, and the product


@dataclass(frozen=True)
class Rounded:
    """A value in float64, and the largest error of each of its elements where it is computed in `dtype`."""

    value: Tensor
    error: Tensor
    dtype: torch.dtype

    @property
    def u(self) -> float:
        """The unit roundoff, and that of the stored answer on top, which is computed in float64."""
        return (torch.finfo(self.dtype).eps + torch.finfo(torch.float64).eps) / 2

    @property
    def tiny(self) -> float:
        """The number below which anything may be taken for 0."""
        return torch.finfo(self.dtype).tiny

    def __matmul__(self, other: "Rounded") -> "Rounded":
        return self._of_products(other, torch.matmul, self.value.shape[-1])

    def __mul__(self, other: "Rounded") -> "Rounded":
        return self._of_products(other, torch.mul, 1)

    def __sub__(self, other: "Rounded") -> "Rounded":
        return self._rounded(self.value - other.value, self.error + other.error, self.value.abs() + other.value.abs())

    def __add__(self, other: "Rounded") -> "Rounded":
        return self - other.map(torch.neg)

    def __truediv__(self, number: float) -> "Rounded":
        """Division by a scale: before a product, where it costs most, since it counts with the magnitudes there."""
        scaled = self.map(lambda x: x / number)
        return self._rounded(scaled.value, scaled.error, scaled.value.abs(), SCALE)

    def sum_to(self, shape: Sequence[int]) -> "Rounded":
        """The sum over the axes that were broadcast from `shape`."""
        terms = self.value.numel() // math.prod(shape)
        value, error, magnitude = (x.sum_to_size(shape) for x in (self.value, self.error, self.value.abs()))
        return self._rounded(value, error, magnitude, terms - 1) if terms > 1 else self

    def map(self, rearrange: Callable[[Tensor], Tensor]) -> "Rounded":
        """The same numbers in another order, or with another sign."""
        return Rounded(rearrange(self.value), rearrange(self.error).abs(), self.dtype)

    @property
    def mT(self) -> "Rounded":  # noqa: N802 (as torch names it)
        return self.map(lambda x: x.mT)

    def _of_products(self, other: "Rounded", multiply: Callable[[Tensor, Tensor], Tensor], terms: int) -> "Rounded":
        a, b = self.value.abs(), other.value.abs()
        handed = multiply(self.error, b) + multiply(a + self.error, other.error)
        return self._rounded(multiply(self.value, other.value), handed, multiply(a, b), terms)

    def _rounded(self, value: Tensor, handed: Tensor, magnitude: Tensor, roundings: int = 1) -> "Rounded":
        return Rounded(value, handed + (roundings + HEADROOM) * (self.u * magnitude + self.tiny), self.dtype)


Bounded = dict[str, Rounded]


def bounds(call: str, inputs: dict[str, Any], cotangent: Tensor | None = None) -> dict[str, Tensor]:
    """For everything that is right, by its name in `Case.expected`, the largest error of each element."""
    dtype = next(x.dtype for x in inputs.values() if isinstance(x, Tensor) and x.is_floating_point())
    working = torch.promote_types(dtype, torch.float32)

    def exact(x: Any) -> Any:
        is_number = isinstance(x, Tensor) and x.is_floating_point()
        return Rounded(x.detach().double(), torch.zeros_like(x, dtype=torch.float64), working) if is_number else x

    arguments = {name: exact(x) for name, x in inputs.items()}
    if cotangent is not None:
        arguments["cotangent"] = exact(cotangent)
    found = globals()[call](**arguments)
    return {what: _returned(x, dtype) for what, x in found.items()}


def _returned(x: Rounded, dtype: torch.dtype) -> Tensor:
    """The error of `x` once it is rounded to the dtype that is returned, where that is half precision."""
    if dtype == x.dtype:
        return x.error
    half = torch.finfo(dtype)
    return x.error + (1 + HEADROOM) * half.eps / 2 * (x.value.abs() + x.error + half.tiny)


def run_softmax(in_features: Rounded, dim: int, cotangent: Rounded | None = None) -> Bounded:
    P = softmax(in_features.map(lambda x: x.movedim(dim, -1)), in_features.value.movedim(dim, -1) > -math.inf)
    found: Bounded = {"answer": P}
    if cotangent is not None:
        found["gradient of in_features"] = softmax_gradient(P, cotangent.map(lambda x: x.movedim(dim, -1)))
    return {what: x.map(lambda x: x.movedim(-1, dim)) for what, x in found.items()}


@dataclass(frozen=True)
class Probabilities(Rounded):
    """The output of softmax.

    Args:
        exponents: the relative error that the roundings of exponents make.
        sums: the relative error that those of sums and quotients make.
    """

    exponents: Tensor
    sums: float


def softmax(scores: Rounded, mask: Tensor | None, blocks: int = 0) -> Probabilities:
    """exp(s - m) / Σ exp(s - m) over the last axis: the error of a score becomes a relative one of the probabilities.

    A score and the largest one, or the logarithm of the sum, are rounded before they are subtracted. What an online
    softmax carries is rescaled with every block.
    """
    hidden = torch.zeros_like(scores.value, dtype=torch.bool) if mask is None else ~mask.expand_as(scores.value)
    s = scores.value.masked_fill(hidden, -math.inf)
    P = torch.softmax(s, -1).masked_fill(hidden, 0.0)  # NaN where there is nothing to attend to

    def relative(errors: Tensor) -> Tensor:
        errors = errors.masked_fill(hidden, 0.0)
        return errors + (P * errors).sum(-1, keepdim=True)

    exponents = relative((EXPONENT + blocks) * scores.u * (s.abs() + s.amax(-1, keepdim=True).abs()))
    sums = (s.shape[-1] + SOFTMAX + RESCALE * blocks + HEADROOM) * scores.u
    error = P * torch.expm1(relative(scores.error) + exponents + sums) + s.shape[-1] * scores.tiny
    return Probabilities(P, error.masked_fill(hidden, 0.0), scores.dtype, exponents, sums)


def softmax_gradient(P: Probabilities, dP: Rounded) -> Rounded:
    """P ∘ (dP - D), where D = Σ P ∘ dP.

    A program that has other probabilities has them throughout: their errors meet the difference of dP and D. What is
    rounded on the way meets the two one by one. Where the gradient also flows through the largest score, which in exact
    arithmetic changes nothing, the roundings of the whole row land on it.
    """
    p, n = P.value, P.value.shape[-1]

    def average(x: Tensor) -> Tensor:
        return (p * x).sum(-1, keepdim=True)

    slope, size = dP.value - average(dP.value), dP.value.abs()
    inherited = P.error * slope.abs() + p * (P.error * slope.abs()).sum(-1, keepdim=True)
    exponents = p * (P.exponents * (size + average(size)) + average(P.exponents * size))
    sums = (P.sums + n * P.u) * (size + 2 * average(size)) + dP.error + average(dP.error)
    largest = p / p.amax(-1, keepdim=True).clamp_min(P.tiny)
    error = inherited + exponents + p * sums + largest * average(sums) + n * P.tiny
    return Rounded(p * slope, error, P.dtype)


def run_scaled_dot_product_attention(
    Q: Rounded, K: Rounded, V: Rounded, mask: Tensor | None = None, cotangent: Rounded | None = None, blocks: int = 0
) -> Bounded:
    scale = math.sqrt(Q.value.shape[-1])
    P = softmax((Q / scale) @ K.mT, mask, blocks)
    found: Bounded = {"answer": P @ V, WEIGHTS: P}
    if cotangent is not None:
        dS = softmax_gradient(P, cotangent @ V.mT)
        gradients = (dS @ (K / scale), dS.mT @ (Q / scale), P.mT @ cotangent)
        for name, x, gradient in zip("QKV", (Q, K, V), gradients, strict=True):
            found[f"gradient of {name}"] = gradient.sum_to(x.value.shape)
    return found


def run_blockwise_attention(
    Q: Rounded,
    K: Rounded,
    V: Rounded,
    mask: Tensor | None = None,
    block_size: int | None = None,
    cotangent: Rounded | None = None,
) -> Bounded:
    """Blocks of which no size is given are taken to be at least 16 keys long."""
    blocks = math.ceil(K.value.shape[-2] / (block_size or 16))
    return run_scaled_dot_product_attention(Q, K, V, mask, cotangent, blocks)


def run_scaled_dot_product_attention_module(
    Q: Rounded,
    K: Rounded,
    V: Rounded,
    mask: Tensor | None,
    cotangent: Rounded | None = None,
    **dropout: Any,
) -> Bounded:
    return run_scaled_dot_product_attention(Q, K, V, mask, cotangent)


def run_linear(d_in: int, d_out: int, weights: Rounded, in_features: Rounded) -> Bounded:
    return {"answer": in_features @ weights.mT}


def run_rope(
    d_k: int,
    theta: float,
    max_seq_len: int,
    in_query_or_key: Rounded,
    token_positions: Tensor,
    cotangent: Rounded | None = None,
) -> Bounded:
    found = {"answer": rotate(in_query_or_key, theta, token_positions)}
    if cotangent is not None:  # the gradient is turned back
        found["gradient of in_query_or_key"] = rotate(cotangent, theta, -token_positions)
    return found


def rotate(x: Rounded, theta: float, positions: Tensor) -> Rounded:
    """Angles in the precision of `x`, as most write them: at position 1000 that alone costs float32 four digits.

    θ^(-2i/d_k) is a power, or the exponential of a product, of a rounded exponent: its relative error is a few u, and
    as many times the logarithm. A product with the position makes it the angle, whose absolute error is that of its
    cosine and sine.
    """
    d_k = x.value.shape[-1]
    logarithms = torch.arange(d_k // 2, dtype=torch.float64) * (2 * math.log(theta) / d_k)
    angles = positions.unsqueeze(-1) * torch.exp(-logarithms)
    of_angles = (3 + 3 * logarithms) * x.u * angles.abs() + 2 * x.u
    cos, sin = (Rounded(f(angles), of_angles.clamp(max=2.0), x.dtype) for f in (torch.cos, torch.sin))
    even, odd = x.map(lambda x: x[..., 0::2]), x.map(lambda x: x[..., 1::2])
    return joined([even * cos - odd * sin, even * sin + odd * cos], lambda pair: torch.stack(pair, -1).flatten(-2))


def joined(parts: Sequence[Rounded], join: Callable[[list[Tensor]], Tensor]) -> Rounded:
    return Rounded(join([x.value for x in parts]), join([x.error for x in parts]), parts[0].dtype)


def run_multihead_self_attention(num_heads: int, in_features: Rounded, **weights: Any) -> Bounded:
    x = in_features
    return _summed(_multihead(num_heads, x, x, x, references.causal(num_heads, x.value), **weights))


def run_multihead_self_attention_with_rope(
    num_heads: int, theta: float, in_features: Rounded, token_positions: Tensor | None = None, **weights: Any
) -> Bounded:
    x = in_features
    positions = torch.arange(x.value.shape[-2]) if token_positions is None else token_positions
    masks = references.causal(num_heads, x.value)
    turns = (lambda x: rotate(x, theta, positions)), (lambda x: rotate(x, theta, -positions))
    return _summed(_multihead(num_heads, x, x, x, masks, *turns, **weights))


def _summed(found: Bounded) -> Bounded:
    """Of self-attention: the one sequence is queries, keys and values, and gets the sum of their gradients."""
    if "gradient of query" in found:
        query, key, value = (found[f"gradient of {name}"] for name in ("query", "key", "value"))
        found["gradient of in_features"] = query + key + value
    return found


def run_multihead_attention(
    num_heads: int, query: Rounded, key: Rounded, value: Rounded, mask: Tensor | None = None, **weights: Any
) -> Bounded:
    return _multihead(num_heads, query, key, value, references.masks_of_heads(num_heads, query.value, mask), **weights)


def _multihead(
    num_heads: int,
    query: Rounded,
    key: Rounded,
    value: Rounded,
    masks: Sequence[Tensor | None],
    turn: Callable[[Rounded], Rounded] = lambda x: x,
    turn_back: Callable[[Rounded], Rounded] = lambda x: x,
    *,
    q_proj_weight: Rounded,
    k_proj_weight: Rounded,
    v_proj_weight: Rounded,
    o_proj_weight: Rounded,
    cotangent: Rounded | None = None,
    **sizes: int,
) -> Bounded:
    def of_head(h: int, x: Rounded, axis: int) -> Rounded:
        return x.map(lambda x: x.chunk(num_heads, axis)[h])

    of_heads = None if cotangent is None else cotangent @ o_proj_weight
    heads = []
    for h, mask in enumerate(masks):
        W_Q, W_K, W_V = (of_head(h, W, 0) for W in (q_proj_weight, k_proj_weight, v_proj_weight))
        Q, K, V = turn(query @ W_Q.mT), turn(key @ W_K.mT), value @ W_V.mT
        head = run_scaled_dot_product_attention(Q, K, V, mask, of_heads and of_head(h, of_heads, -1))
        if of_heads:
            head |= {name: turn_back(head[name]) for name in ("gradient of Q", "gradient of K")}
        heads.append(head)
    parts = {what: joined([head[what] for head in heads], lambda parts: torch.cat(parts, -1)) for what in heads[0]}
    found = {"answer": parts["answer"] @ o_proj_weight.mT}
    if cotangent is not None:
        found |= _linear_gradients("o", o_proj_weight, "heads", parts["answer"], cotangent)
        found |= _linear_gradients("q", q_proj_weight, "query", query, parts["gradient of Q"])
        found |= _linear_gradients("k", k_proj_weight, "key", key, parts["gradient of K"])
        found |= _linear_gradients("v", v_proj_weight, "value", value, parts["gradient of V"])
    return found


def _linear_gradients(weight: str, W: Rounded, name: str, x: Rounded, cotangent: Rounded) -> Bounded:
    rows = cotangent.map(lambda x: x.flatten(0, -2)).mT @ x.map(lambda x: x.flatten(0, -2))
    return {f"gradient of {weight}_proj_weight": rows, f"gradient of {name}": cotangent @ W}
