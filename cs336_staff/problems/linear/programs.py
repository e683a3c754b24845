"""The linear layer as right programs compute it."""

from einops import einsum
from torch import Tensor

from cs336_staff.authoring.room import Part
from cs336_staff.problems.linear.program import RIGHT, run_linear


def linear_in_steps(x: Tensor, W: Tensor, /, **ways: Part) -> Tensor:
    """The linear layer in steps, some of them done in other ways."""
    return run_linear({**RIGHT, **ways}, W.shape[1], W.shape[0], W, x)


def linear_einsum(x: Tensor, W: Tensor) -> Tensor:
    return einsum(x, W, "... d_in, d_out d_in -> ... d_out")


def linear_matmul(x: Tensor, W: Tensor) -> Tensor:
    return x @ W.T


STYLES = {"einsum": linear_einsum, "matmul": linear_matmul}
