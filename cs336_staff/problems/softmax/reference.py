"""What softmax gives in float64."""

import torch
from torch import Tensor


def run_softmax(in_features: Tensor, dim: int) -> Tensor:
    return torch.softmax(in_features, dim)
