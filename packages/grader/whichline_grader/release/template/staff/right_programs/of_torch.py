"""CHANGE: your functions by torch's own, or in another way than the reference: a second opinion, which `verify` wants."""

from torch.nn import functional as F


def run_standardize(x, eps):
    return F.layer_norm(x, x.shape[-1:], eps=eps)
