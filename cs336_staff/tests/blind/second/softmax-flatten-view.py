"""Softmax that flattens everything to two dimensions, (slices, n), and normalises the rows.

Wrong: after the transpose the tensor is not contiguous, and `view` refuses it, so with three or
more dimensions every `dim` but the last one (and most inputs that are themselves not contiguous) raises a RuntimeError. With one
or two dimensions, and along the last dimension of a contiguous tensor, it is right.
"""

import torch


def softmax_rows(rows):
    # rows: (N, n)
    m, _ = rows.max(dim=1, keepdim=True)
    m = torch.where(torch.isneginf(m), torch.zeros_like(m), m)
    e = (rows - m).exp()
    s = e.sum(1, keepdim=True)
    return e / torch.where(s == 0, torch.ones_like(s), s)


def softmax(x, dim):
    if x.dim() == 0:
        return torch.ones_like(x)
    n = x.size(dim)
    xt = x.transpose(dim, -1)
    rows = xt.view(-1, n)
    if rows.dtype in (torch.half, torch.bfloat16):
        probs = softmax_rows(rows.float()).to(x.dtype)
    else:
        probs = softmax_rows(rows)
    return probs.view(xt.shape).transpose(dim, -1)


def run_softmax(in_features, dim):
    return softmax(in_features, dim)
