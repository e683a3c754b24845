"""The weights of one submission's attention on one public case, for its student to see beside the right ones.

With the identity matrix as V, the answer of attention is its weights. Everything here may have been chosen by the
submission: of what it answers, only a matrix of this case's shape is kept, in float64, and only what is finite in it.
"""

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.assignment import find_root
from cs336_kit.engine.case import load_case
from cs336_kit.engine.failure import Stopped
from cs336_staff.authoring.references import run_scaled_dot_product_attention
from cs336_staff.grading.gradebook import Matrix

CASE = "attention/3d-causal"
PROBLEM = "scaled_dot_product_attention"


def measure_weights(attention: Callable[..., Any]) -> Matrix:
    """Ask `attention` for its weights in the first batch entry of the case.

    Returns:
        One row for each query, with None for what is NaN or infinite; no rows if there is no usable answer.
    """
    Q, K, V, mask = _inputs()
    with suppress(Exception, Stopped, SystemExit):
        answer = attention(Q, K, V, mask)
        shape = (*Q.shape[:-1], K.shape[-2])
        if isinstance(answer, Tensor) and answer.is_floating_point() and answer.shape == shape:
            return _rows(answer.detach()[0].double())
    return ()


@cache
def right_weights() -> Matrix:
    """Compute the weights that are right, in float64."""
    Q, K, V, mask = _inputs()
    return _rows(run_scaled_dot_product_attention(Q.double(), K.double(), V.double(), mask)[0])


@cache
def allowed() -> tuple[tuple[bool, ...], ...]:
    """Tell for each query which keys its mask allows."""
    return tuple(tuple(row) for row in _inputs()[3].tolist())


def _inputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Q, K, V and the mask; tensors that nobody else has."""
    case = load_case(find_root(Path(__file__).parent) / "fixtures", CASE).copy()
    keys = case.K.shape[-2]
    return case.Q, case.K, torch.eye(keys).expand(*case.K.shape[:-1], keys).contiguous(), case.mask


def _rows(weights: Iterable[Tensor]) -> Matrix:
    return tuple(tuple(float(f"{x:.6g}") if math.isfinite(x) else None for x in row.tolist()) for row in weights)
