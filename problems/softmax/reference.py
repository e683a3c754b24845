"""Softmax. Unused values are other right ways to write it."""

import math

import torch
from torch import Tensor


# 2 Softmax
def run_softmax(in_features: Tensor, dim: int) -> Tensor:
    x = in_features  #: x
    largest = x.amax(dim, keepdim=True)  #: the maximum along `dim`. Over which axis is the maximum taken?
    flat_largest = largest.squeeze(dim)  #: the maximum along `dim`, without that axis
    #: the maximum along `dim`, and 0 where that is −inf. What is −inf − (−inf)?
    finite = torch.where(largest == -math.inf, 0.0, largest)
    shifted = x - finite  #: x − max. How large may exp(x) become, and what keeps it small?
    e = shifted.exp()  #: exp(x − max). How large may exp(x) become, and what keeps it small?
    total = e.sum(dim, keepdim=True)  #: the sum of exp(x − max). Which axis should each slice sum over?
    flat_total = e.sum(dim)  #: the sum of exp(x − max), without that axis
    positive = torch.where(total == 0, 1.0, total)  #: the sum of exp(x − max), and 1 where it is 0. What is 0 / 0?
    reciprocal = 1 / positive  #: 1 / the sum
    log_total = positive.log()  #: log of the sum
    log_sum = finite + log_total  #: log Σ exp(x). What did the maximum, once subtracted, take from it?
    log_softmax = shifted - log_total  #: log of the softmax
    return e / positive  #: the softmax. Which numbers should sum to 1?


# 3 Attention
def weigh(scores: Tensor) -> Tensor:
    """Turn scores into weights, by a softmax over the keys that is written out."""
    #: each query's largest score. Over which axis should each query's weights sum to 1?
    largest = scores.amax(-1, keepdim=True)
    flat_largest = largest.squeeze(-1)  #: each query's largest score, without that axis
    #: each query's largest score, and 0 where that is −inf. What should a query that may attend to nothing get?
    finite = torch.where(largest == -math.inf, 0.0, largest)
    shifted = scores - finite  #: the scores − each query's largest
    e = shifted.exp()  #: exp of the scores. Over which axis should each query's weights sum to 1?
    unshifted = scores.exp()  #: exp of the scores, without a maximum subtracted
    total = e.sum(-1, keepdim=True)  #: the sum for each query. Over which axis should each query's weights sum to 1?
    #: the sum for each query, and 1 where it is 0. What should a query that may attend to nothing get?
    positive = torch.where(total == 0, 1.0, total)
    #: log Σ exp of each query's scores. Over which axis should each query's weights sum to 1?
    log_total = finite + positive.log()
    return e / positive
