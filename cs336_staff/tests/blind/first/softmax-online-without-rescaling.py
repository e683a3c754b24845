"""One pass over the slice with a running maximum and a running sum, as in online softmax, but the sum so far is not
rescaled when the maximum grows. Right only if the largest logit comes first."""

import torch
from torch import Tensor


def run_softmax(in_features: Tensor, dim: int) -> Tensor:
    x = in_features.to(torch.promote_types(in_features.dtype, torch.float32))

    columns = x.unbind(dim)
    running_max = torch.full_like(columns[0], torch.finfo(x.dtype).min)
    running_sum = torch.zeros_like(columns[0])
    for column in columns:
        running_max = torch.maximum(running_max, column)
        running_sum = running_sum + torch.exp(column - running_max)

    result = torch.exp(x - running_max.unsqueeze(dim)) / running_sum.unsqueeze(dim)
    return result.to(in_features.dtype)
