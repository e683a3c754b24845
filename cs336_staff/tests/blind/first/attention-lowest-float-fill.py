"""Masked logits are filled with the lowest finite number instead of minus infinity, to get rid of NaN. A query that
may attend to nothing then gets the plain average of all values, not zeros."""

import torch
from torch import Tensor


def _softmax(t: Tensor) -> Tensor:
    num = (t - t.amax(-1, keepdim=True)).exp()
    return num / num.sum(-1, keepdim=True)


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    dtype = torch.promote_types(Q.dtype, torch.float32)
    logits = torch.einsum("...qd,...kd->...qk", Q.to(dtype), K.to(dtype)) * Q.shape[-1] ** -0.5
    if mask is not None:
        # -inf gives nan for rows that are fully masked
        logits = logits.masked_fill(mask.logical_not(), torch.finfo(dtype).min)
    return torch.einsum("...qk,...kd->...qd", _softmax(logits), V.to(dtype)).to(Q.dtype)
