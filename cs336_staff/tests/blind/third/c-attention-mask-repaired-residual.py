"""Two mistakes. First: rows of the mask with nothing to attend to are filled with True in place, in the mask of the
caller (the answer of these rows is set to zeros afterwards, but the mask stays changed). Second: when the answer has the
shape of Q, Q is added to it as a residual connection."""
import math

import torch
from torch import Tensor
from typing import Optional


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Optional[Tensor] = None) -> Tensor:
    work = torch.float64 if Q.dtype == torch.float64 else torch.float32
    scores = torch.matmul(Q.to(work), K.to(work).mT) / math.sqrt(max(1, Q.shape[-1]))
    blind = None
    if mask is not None:
        blind = ~mask.any(dim=-1, keepdim=True)
        # let blind queries see everything for now, otherwise softmax gives nan
        mask.masked_fill_(blind, True)
        scores = scores.masked_fill(~mask, -math.inf)
    if K.shape[-2] > 0:
        scores = torch.exp(scores - scores.amax(dim=-1, keepdim=True).detach())
        scores = scores / scores.sum(dim=-1, keepdim=True)
    out = torch.matmul(scores, V.to(work))
    if blind is not None:
        out = out.masked_fill(blind, 0.0)
    out = out.to(Q.dtype)
    if out.shape == Q.shape:
        out = Q + out  # add & norm
    return out
