"""One mistake: the batch-like dimensions of Q, K and V are each flattened for torch.bmm without being broadcast against
each other first, so it raises an error when one key/value head serves several query heads, or pairs the wrong ones when
the products of the sizes happen to agree."""
import math

import torch
from torch import Tensor


def _flat(t: Tensor) -> Tensor:
    t = t.float() if t.dtype in (torch.float16, torch.bfloat16) else t
    return t.reshape(math.prod(t.shape[:-2]), t.shape[-2], t.shape[-1])


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    lead = Q.shape[:-2]
    n_q, n_k = Q.shape[-2], K.shape[-2]
    q, k, v = _flat(Q), _flat(K), _flat(V)
    w = torch.bmm(q, k.mT) / math.sqrt(max(1, q.shape[-1]))
    if mask is not None:
        full = mask.expand(*lead, n_q, n_k).reshape(w.shape)
        w = w.masked_fill(~full, -math.inf)
    if n_k:
        peak = w.amax(-1, keepdim=True).detach()
        w = torch.exp(w - peak.masked_fill(peak == -math.inf, 0))
        norm = w.sum(-1, keepdim=True)
        w = w / norm.masked_fill(norm == 0, 1)
    out = torch.bmm(w, v)
    return out.reshape(*lead, n_q, V.shape[-1]).to(Q.dtype)
