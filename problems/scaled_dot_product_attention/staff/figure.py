"""The weights of a submission's attention on one public case, shown to its student beside the right ones.

With the identity matrix as V, the output of attention is its weights. The submission may return anything, so only a
matrix of the right shape is kept, in float64, and only its finite numbers.
"""

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from problems.scaled_dot_product_attention.reference import run_scaled_dot_product_attention
from whichline.engine.assignment import find_root
from whichline.engine.case import load_case
from whichline.engine.errors import Stopped
from whichline_grader.author import Figure, Matrix

CASE = "attention/3d-causal"
AGREES = 0.0005  # the difference at which two weights still agree to three decimals


def measure_weights(attention: Callable[..., Any]) -> Matrix:
    """Measure the weights in the first batch entry of the case, None for NaN and infinity; none of unusable output."""
    Q, K, V, mask = _load_inputs()
    with suppress(Exception, Stopped, SystemExit):
        answer = attention(Q, K, V, mask)
        shape = (*Q.shape[:-1], K.shape[-2])
        if isinstance(answer, Tensor) and answer.is_floating_point() and answer.shape == shape:
            return _list_rows(answer.detach()[0].double())
    return ()


@cache
def compute_right_weights() -> Matrix:
    """Compute the right weights in float64."""
    Q, K, V, mask = _load_inputs()
    return _list_rows(run_scaled_dot_product_attention(Q.double(), K.double(), V.double(), mask)[0])


@cache
def list_allowed_keys() -> tuple[tuple[bool, ...], ...]:
    """Tell for each query which keys its mask allows."""
    return tuple(tuple(row) for row in _load_inputs()[3].tolist())


def _load_inputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Load Q, K, V and the mask as fresh copies."""
    case = load_case(find_root(Path(__file__).parent) / "fixtures", CASE).copy()
    keys = case.K.shape[-2]
    return case.Q, case.K, torch.eye(keys).expand(*case.K.shape[:-1], keys).contiguous(), case.mask


def _list_rows(weights: Iterable[Tensor]) -> Matrix:
    return tuple(tuple(float(f"{x:.6g}") if math.isfinite(x) else None for x in row.tolist()) for row in weights)


def compare_weights(weights: Matrix) -> str:
    """Say where a student's weights differ most from the right ones."""
    if not weights:
        return "Your attention gave no usable output in this case, so only the right weights are shown."
    if missing := sum(weight is None for row in weights for weight in row):
        are = "are" if missing > 1 else "is"
        return f"{missing} of your {sum(map(len, weights))} weights {are} NaN or infinite."
    differences = [
        (abs(yours - right), query, key, yours, right)
        for query, (row, right_row) in enumerate(zip(weights, compute_right_weights(), strict=True))
        for key, (yours, right) in enumerate(zip(row, right_row, strict=True))
        if yours is not None and right is not None
    ]
    most, query, key, yours, right = max(differences)
    if most <= AGREES:
        return "Your weights are right: they agree with the right ones to three decimals."
    wrong = f"your weight there is {yours:.3g}, and it should be {right:.3g}"
    return f"They differ most for query {query} and key {key}, counted from 0: {wrong}."


FIGURE = Figure(
    call="run_scaled_dot_product_attention",
    measure=measure_weights,
    right=compute_right_weights,
    allowed=list_allowed_keys,
    compare=compare_weights,
    title="The weights of your attention",
    row="query",
    caption=(
        "Rows are queries, columns are keys; hatched: weight 0, since the mask hides the key. This is the first batch "
        f"entry of fixtures/{CASE}.safetensors, which you have. V is the identity matrix, so the output is the weights."
    ),
)
