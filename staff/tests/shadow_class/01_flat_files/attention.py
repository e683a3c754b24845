import math

import torch

from my_softmax import softmax


def attention(Q, K, V, mask=None):
    dtype = Q.dtype
    if dtype in (torch.float16, torch.bfloat16):
        Q, K, V = Q.float(), K.float(), V.float()
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.size(-1))
    if mask is not None:
        # a row with nothing to see is left alone in the softmax (else it is nan) and zeroed afterwards
        sees_something = mask.any(dim=-1, keepdim=True)
        scores = scores.masked_fill(~mask & sees_something, float("-inf"))
    weights = softmax(scores, -1)
    if mask is not None:
        weights = weights.masked_fill(~sees_something, 0.0)
    return (weights @ V).to(dtype)
