"""Wrong: the running maximum of the one-pass softmax starts at -inf, and a slice that begins with -inf subtracts -inf
from -inf: the running sum becomes NaN and the whole slice with it. Slices that begin with a finite logit are right."""

import math

import torch
from torch import Tensor


def softmax(x: Tensor, dim: int) -> Tensor:
    """One pass for maximum and normaliser (Milakov and Gimelshein), a second one for the probabilities."""
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    if wide.ndim == 0:
        return torch.exp(wide - wide).to(x.dtype)
    running_max = torch.full_like(wide.detach().select(dim, 0), -math.inf) if wide.shape[dim] else None
    if running_max is None:
        return x.clone()
    running_sum = torch.zeros_like(running_max)
    for logit in wide.unbind(dim):
        new_max = torch.maximum(running_max, logit.detach())
        running_sum = running_sum * torch.exp(running_max - new_max) + torch.exp(logit - new_max)
        running_max = new_max
    return (torch.exp(wide - running_max.unsqueeze(dim)) / running_sum.unsqueeze(dim)).to(x.dtype)


def run_softmax(in_features: Tensor, dim: int) -> Tensor:
    return softmax(in_features, dim)
