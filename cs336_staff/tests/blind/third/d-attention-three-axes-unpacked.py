"""Wrong: the shape of Q is unpacked into exactly three names (batch, queries, d_k), so that it crashes for Q without a
batch dimension and for Q with heads or more dimensions. With three dimensions it is right."""

import math

import torch
from torch import Tensor


def one_attention(q, k, v, mask):
    scores = torch.zeros(q.shape[0], k.shape[0], dtype=q.dtype) + q @ k.T / math.sqrt(q.shape[1])
    if mask is not None:
        scores = scores.masked_fill(mask == False, -math.inf)  # noqa: E712
    if k.shape[0] == 0:
        return scores @ v
    biggest = scores.max(dim=1, keepdim=True).values.detach()
    biggest = biggest.masked_fill(biggest == -math.inf, 0.0)
    e = torch.exp(scores - biggest)
    total = e.sum(dim=1, keepdim=True)
    total = total.masked_fill(total == 0, 1.0)
    return (e / total) @ v


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    dtype = Q.dtype
    batch, n_queries, d_k = Q.shape
    n_keys, d_v = V.shape[-2], V.shape[-1]
    # one key/value head may serve all
    for other in (K, V, mask):
        if other is not None and other.ndim == 3:
            batch = max(batch, other.shape[0])
    Q = Q.expand(batch, n_queries, d_k)
    K = K.expand(batch, n_keys, d_k)
    V = V.expand(batch, n_keys, d_v)
    if dtype == torch.float16 or dtype == torch.bfloat16:
        Q, K, V = Q.float(), K.float(), V.float()
    if mask is not None:
        mask = mask.expand(batch, n_queries, n_keys)
    answers = []
    for b in range(batch):
        answers.append(one_attention(Q[b], K[b], V[b], mask[b] if mask is not None else None))
    return torch.stack(answers).to(dtype)
