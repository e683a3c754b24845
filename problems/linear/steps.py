"""The linear layer in steps."""

from torch import Tensor

from whichline.way.steps import Steps


def follow_linear(step: Steps, d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
    step.section = "4 Linear layer"
    step("the input", in_features)
    step("the weights", weights)
    step("the weights, transposed", weights.mT)
    return step("the answer", in_features @ weights.mT, "Which axis of the weights belongs to the input?")
