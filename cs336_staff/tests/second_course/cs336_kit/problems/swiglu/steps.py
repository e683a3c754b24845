"""SwiGLU in steps."""

import torch
from torch import Tensor

from cs336_kit.way.steps import Steps

SILU = "Which of the three matrices is inside SiLU?"


def follow_swiglu(step: Steps, W1: Tensor, V: Tensor, W2: Tensor, in_features: Tensor) -> Tensor:
    step.section = "3 SwiGLU"
    gate = step("W1 x", in_features @ W1.mT, SILU)
    sigmoid = step("the sigmoid of W1 x", torch.sigmoid(gate), SILU)
    silu = step("SiLU(W1 x)", gate * sigmoid, SILU)
    hidden = step("SiLU(W1 x) · V x", silu * step("V x", in_features @ V.mT, SILU), SILU)
    return step("the answer", hidden @ W2.mT, "Which matrix comes last?")
