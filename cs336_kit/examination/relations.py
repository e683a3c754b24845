"""Simple relations between a wrong answer and the right one, for mistakes that no stored answer can show."""

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import torch
from torch import Tensor

# Relations that recognise a mistake whose numbers differ from one program to the next.
SIGNS = ("dropout", "same offset in every row", "short sums", "imprecise")


def relations(
    answer: Tensor, expected: Tensor, dtype: torch.dtype, tolerance: float, inputs: dict[str, Any]
) -> dict[str, str]:
    """The relations that hold, each with a sentence for the student, the most telling first.

    One without a sentence does not tell by itself: any answer so small, or so wrong, has it.

    Args:
        answer: the wrong answer.
        expected: the right answer in float64.
        dtype: what the answer should have.
        tolerance: the largest error of a right answer.
        inputs: the arguments of the call.
    """
    got = answer.detach().double()
    if got.shape != expected.shape:
        return dict(_permuted(got, expected, tolerance))
    found = (
        *_dtype(got, answer.dtype, expected, dtype, tolerance),
        *_permuted(got, expected, tolerance),
        *_nan(got, expected, tolerance),
        *_masked(got, expected, tolerance, mask_of_rows(inputs)),
        *_repeated(got, expected, tolerance),
        *_factor(got, expected, tolerance),
        *_dropout(got, expected, inputs.get("V")),
        *_offset(got, expected, tolerance),
        *_short_sums(got, expected, tolerance, inputs.get("dim")),
        *_imprecise(got, expected, tolerance),
    )
    return dict(found)


def mask_of_rows(inputs: dict[str, Any]) -> Tensor | None:
    """The mask, if its rows are those of the answer: not where it is for several heads."""
    return None if "num_heads" in inputs else inputs.get("mask")


def weights(answer: Tensor, V: Tensor) -> Tensor | None:
    """The weights with which `answer` sums the rows of `V`; None where there is no such sum, or more than one."""
    values = V.double()
    if V.shape[-2] > V.shape[-1] or not answer.isfinite().all():
        return None
    found = answer.double() @ torch.linalg.pinv(values)
    error = (found @ values - answer).abs().max()
    return found if error <= 64 * torch.finfo(V.dtype).eps * values.abs().max() else None


Found = Iterator[tuple[str, str]]


def _close(a: Tensor, b: Tensor, tolerance: float) -> bool:
    return a.shape == b.shape and bool(((a - b).abs() <= 2 * tolerance).all())


def _dtype(got: Tensor, came: torch.dtype, expected: Tensor, dtype: torch.dtype, tolerance: float) -> Found:
    eps = torch.finfo(came).eps if came.is_floating_point else 0.0
    if came != dtype and _close(got, expected, max(tolerance, eps)):
        yield "dtype", "The numbers are right; only the dtype is not."


def _permuted(got: Tensor, expected: Tensor, tolerance: float) -> Found:
    if not 2 <= expected.ndim <= 4 or got.numel() != expected.numel():
        return
    for axes in permutations(range(expected.ndim)):
        if axes != tuple(range(expected.ndim)) and _close(got, expected.permute(axes), tolerance):
            yield "permuted", f"The numbers are right, but the axes stand in the order {axes}."
            return
    if got.shape != expected.shape and _close(got.flatten(), expected.flatten(), tolerance):
        yield "reshaped", "The numbers are right and in the right order; only the shape is not."


def _nan(got: Tensor, expected: Tensor, tolerance: float) -> Found:
    known = got.isfinite()
    if known.any() and not known.all() and _close(got[known], expected[known], tolerance):
        yield "right but for NaN", "Everything that is not NaN or infinite is right."


def _masked(got: Tensor, expected: Tensor, tolerance: float, mask: Tensor | None) -> Found:
    """By rows: one row is what one query gets."""
    if mask is None or got.ndim < 2:
        return
    right = ((got - expected).abs() <= tolerance).all(-1)
    nothing = (~mask.any(-1)).expand(right.shape)
    hidden = (~mask.all(-1)).expand(right.shape)
    if right[~nothing].all():
        yield "right but for nothing", "Right wherever a query may attend to something, wrong where to nothing."
    elif right[~hidden].all() and not hidden.all():
        yield "right but where masked", "Right where the mask allows every key, wrong where it forbids some."


def _repeated(got: Tensor, expected: Tensor, tolerance: float) -> Found:
    for axis in range(got.ndim - 2):
        first, others = got.narrow(axis, 0, 1), got.shape[axis] > 1
        right = _close(first, expected.narrow(axis, 0, 1), tolerance)
        if others and right and _close(got, first.expand_as(got), tolerance):
            yield "repeated", f"What index 0 along axis {axis} should get is repeated for all {got.shape[axis]}."


def _factor(got: Tensor, expected: Tensor, tolerance: float) -> Found:
    factor = float((got * expected).sum() / expected.square().sum().clamp_min(1e-300))
    scaled = tolerance * max(1.0, abs(factor))
    if factor != 0.0 and got.numel() > 2 and _close(got, factor * expected, scaled):
        yield "factor", f"Your answer is {factor:.4g} times the right one, everywhere."


def _dropout(got: Tensor, expected: Tensor, V: Tensor | None) -> Found:
    if V is None:
        return
    pairs = [(got, expected)]
    if (yours := weights(got, V)) is not None and (right := weights(expected, V)) is not None:
        pairs.append((yours, right))
    sentences = []
    for x, y in pairs:
        # Rounding makes the ratio of small weights say nothing.
        telling = y.abs() > max(0.02, 32 * torch.finfo(V.dtype).eps) * y.abs().max()
        ratio = x[telling] / y[telling]
        kept = ratio[ratio.abs() > 0.3]
        if ratio.isfinite().all() and (kept > 1.01).all() and (kept - kept.mean()).abs().le(0.1).all():
            factor = f"{kept.mean():.2f} times as large"
            some = 0 < len(kept) < len(ratio)
            sentences.append(f"Some weights are 0 that should not be, and the others are {factor}." if some else "")
    if sentences:
        yield "dropout", max(sentences)


def _offset(got: Tensor, expected: Tensor, tolerance: float) -> Found:
    offset = (got - expected).reshape(-1, got.shape[-1])
    if _close(offset, offset[:1].expand_as(offset), tolerance):
        several = len(offset) > 1
        yield "same offset in every row", "Every row of your answer is off by the same vector." if several else ""


def _short_sums(got: Tensor, expected: Tensor, tolerance: float, dim: int | None) -> Found:
    if dim is None:
        return
    total = got.sum(dim, keepdim=True)
    if ((total > 0.9) & (total < 1.0)).all() and _close(got / total, expected, tolerance):
        yield "short sums", "The proportions are right, but each slice sums to a little less than 1."


def _imprecise(got: Tensor, expected: Tensor, tolerance: float) -> Found:
    error, largest = float((got - expected).abs().max()), float(expected.abs().max())
    if tolerance < error <= 3 * torch.finfo(torch.float16).eps * largest:
        yield "imprecise", f"Right to {error / largest:.0e} of the largest number: the precision, not the formula."
