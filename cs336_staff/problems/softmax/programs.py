"""Softmax as right programs compute it. Half precision is computed in float32."""

import torch
from einops import reduce
from torch import Tensor

from cs336_staff.authoring.room import Part
from cs336_staff.problems.softmax.program import RIGHT, normalise


def widened(x: Tensor) -> Tensor:
    """Half precision is computed in float32."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def softmax(x: Tensor, dim: int) -> Tensor:
    last = widened(x).movedim(dim, -1)
    exponentials = torch.exp(last - reduce(last, "... n -> ... 1", "max"))
    return (exponentials / reduce(exponentials, "... n -> ... 1", "sum")).movedim(-1, dim).to(x.dtype)


def softmax_in_steps(x: Tensor, dim: int, /, **ways: Part) -> Tensor:
    """Softmax in steps, some of them done in other ways."""
    return normalise({**RIGHT, **ways}, widened(x), dim).to(x.dtype)


def softmax_of_torch(x: Tensor, dim: int) -> Tensor:
    return torch.softmax(widened(x), dim).to(x.dtype)


STYLES = {"einsum": softmax, "matmul": softmax_of_torch}
