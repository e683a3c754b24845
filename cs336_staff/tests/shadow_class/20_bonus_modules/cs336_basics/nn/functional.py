import math

import torch


def softmax(x, dim):
    y = x.to(torch.promote_types(x.dtype, torch.float32))
    top = y.amax(dim, keepdim=True).detach()
    e = torch.exp(y - torch.where(top.isinf(), 0.0, top))
    total = e.sum(dim, keepdim=True)
    return (e / torch.where(total == 0, 1.0, total)).to(x.dtype)


def attention_scores(Q, K, mask=None):
    wide = torch.promote_types(Q.dtype, torch.float32)
    scores = Q.to(wide) @ K.to(wide).mT / math.sqrt(Q.shape[-1])
    return scores if mask is None else scores.masked_fill(~mask, -math.inf)


def attention_weights(Q, K, mask=None):
    return softmax(attention_scores(Q, K, mask), -1)


def scaled_dot_product_attention(Q, K, V, mask=None):
    weights = attention_weights(Q, K, mask)
    return (weights @ V.to(weights.dtype)).to(Q.dtype)
