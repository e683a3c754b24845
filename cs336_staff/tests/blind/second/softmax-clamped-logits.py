"""Softmax that clamps the logits at 80 against overflow, instead of subtracting the maximum of the slice.

Wrong: logits above 80 all count as 80 (so 100 and 1000 get the same probability), and a slice whose logits are all very
negative underflows to zeros. Ordinary logits come out right.
"""

import torch


def softmax(x, dim):
    dtype = x.dtype
    if dtype in (torch.float16, torch.bfloat16):
        x = x.float()
    # exp(89) is inf in float32, so keep away from it
    exps = torch.exp(x.clamp(max=80.0))
    total = exps.sum(dim=dim, keepdim=True)
    total = torch.where(total == 0, torch.ones_like(total), total)  # all -inf -> zeros, not nan
    return (exps / total).to(dtype)


def run_softmax(in_features, dim):
    return softmax(in_features, dim)
