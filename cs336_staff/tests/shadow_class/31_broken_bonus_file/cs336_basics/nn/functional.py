import torch
from einops import einsum


def softmax(x, dim):
    y = x.to(torch.promote_types(x.dtype, torch.float32))
    y = (y - y.amax(dim, keepdim=True)).exp()
    return (y / y.sum(dim, keepdim=True)).to(x.dtype)


def attention_scores(Q, K, mask=None):
    scores = einsum(Q, K, "... q d, ... k d -> ... q k") / Q.shape[-1] ** 0.5
    return scores if mask is None else scores.masked_fill(~mask, -torch.inf)


def attention_weights(Q, K, mask=None):
    scores = attention_scores(Q, K, mask)
    if mask is None:
        return softmax(scores, -1)
    blind = ~mask.any(-1, keepdim=True)
    return softmax(scores.masked_fill(blind, 0.0), -1).masked_fill(blind, 0.0)


def scaled_dot_product_attention(Q, K, V, mask=None):
    q, k, v = (t.to(torch.promote_types(t.dtype, torch.float32)) for t in (Q, K, V))
    return einsum(attention_weights(q, k, mask), v, "... q k, ... k d -> ... q d").to(Q.dtype)
