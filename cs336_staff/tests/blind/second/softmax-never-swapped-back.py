"""Softmax that moves `dim` to the end to work on the last axis.

Wrong: the axes are never swapped back, so for any `dim` but the last the answer comes out with `dim` and the last axis
exchanged (wrong shape, or silently transposed if the two have the same length).
"""

import torch


class Softmax:
    def __init__(self, dim):
        self.dim = dim

    @staticmethod
    def _stable_exp(x):
        biggest = x.amax(-1, keepdim=True)
        biggest = biggest.masked_fill(biggest == float("-inf"), 0.0)
        return torch.exp(x - biggest)

    def __call__(self, x):
        work = x.to(torch.promote_types(x.dtype, torch.float32))
        work = work.swapaxes(self.dim, -1)
        e = self._stable_exp(work)
        z = e.sum(-1, keepdim=True)
        z = z.masked_fill(z == 0, 1.0)
        return (e / z).to(x.dtype)


def run_softmax(in_features, dim):
    return Softmax(dim)(in_features)
