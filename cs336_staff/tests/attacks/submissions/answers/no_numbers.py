"""Answer with NaN, infinity, None, a list and every kind of tensor that is no dense one, a different one each call.

plain: refused
report: expected a dense CPU tensor
"""

import itertools

import torch

KINDS = itertools.cycle(
    [
        lambda x: x.to("meta"),
        lambda x: x * float("nan"),
        lambda x: x / 0,
        lambda x: None,
        lambda x: x.tolist(),
        lambda x: x.to_sparse(),
        lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.quint8),
    ]
)


def run_softmax(in_features, dim):
    return next(KINDS)(in_features)
