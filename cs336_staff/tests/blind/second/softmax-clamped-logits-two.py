"""Against overflow the logits are clamped to the range -50 to 50; the maximum of the slice is not subtracted.

Logits beyond 50 in size become equal, and a logit of -inf gets a weight above 0.
"""

import torch


def softmax(x, dim):
    logits = x if x.dtype == torch.float64 else x.float()
    # exp(88) is about the limit of float32, so stay well below it
    logits = torch.clamp(logits, min=-50.0, max=50.0)
    e = torch.exp(logits)
    return (e / e.sum(dim=dim, keepdim=True)).to(x.dtype)


def run_softmax(in_features, dim):
    return softmax(in_features, dim)
