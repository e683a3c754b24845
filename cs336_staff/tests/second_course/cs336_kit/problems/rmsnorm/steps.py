"""RMSNorm in steps."""

from torch import Tensor

from cs336_kit.way.steps import Steps

ROOT = "Over how many features do you average, and where does eps stand?"


def follow_rmsnorm(step: Steps, d_model: int, eps: float, weights: Tensor, in_features: Tensor) -> Tensor:
    step.section = "2 RMSNorm"
    mean = step("the mean of the squares", in_features.square().mean(-1, keepdim=True), ROOT)
    root = step("the root mean square", (step("the mean of the squares + eps", mean + eps, ROOT)).sqrt(), ROOT)
    scaled = step("x divided by its root mean square", in_features / root, ROOT)
    return step("the answer", scaled * weights, "What are the weights multiplied with?")
