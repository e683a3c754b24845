"""What the tests call."""

from jaxtyping import Float, Int
from torch import Tensor
from torch.func import functional_call

from cs336_basics.nn import functions


def run_rmsnorm(
    d_model: int, eps: float, weights: Float[Tensor, " d_model"], in_features: Float[Tensor, " ... d_model"]
) -> Float[Tensor, " ... d_model"]:
    # BEGIN SOLUTION
    return functional_call(functions.RMSNorm(d_model, eps), {"weight": weights}, in_features)
    # END SOLUTION


def run_swiglu(
    W1: Float[Tensor, " d_ff d_model"],
    V: Float[Tensor, " d_ff d_model"],
    W2: Float[Tensor, " d_model d_ff"],
    in_features: Float[Tensor, " ... d_model"],
) -> Float[Tensor, " ... d_model"]:
    # BEGIN SOLUTION
    return functions.swiglu(in_features, W1, V, W2)
    # END SOLUTION


def run_cross_entropy(logits: Float[Tensor, " batch classes"], targets: Int[Tensor, " batch"]) -> Float[Tensor, ""]:
    # BEGIN SOLUTION
    return functions.cross_entropy(logits, targets)
    # END SOLUTION
