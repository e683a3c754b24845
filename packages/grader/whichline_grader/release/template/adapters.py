"""CHANGE: one `run_*` function for each function that the tests call; it calls what students write."""

from torch import Tensor

from NAME import functions


def run_standardize(x: Tensor, eps: float) -> Tensor:
    # BEGIN SOLUTION
    return functions.standardize(x, eps)
    # END SOLUTION
