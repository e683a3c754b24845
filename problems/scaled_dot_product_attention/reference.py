"""Scaled dot-product attention. Unused values are other right ways to write it."""

import math

import torch
from torch import Tensor

from problems.softmax.reference import run_softmax, weigh


# 3 Attention
def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    values = V  #: the values. Which of Q, K and V belongs here, and along which axes?
    logits = attention_scores(Q, K, mask)  #: the masked, scaled scores
    weights = weigh(logits)  #: the weights. Over which axis should each query's weights sum to 1?
    return run_softmax(logits, -1) @ values  #: the answer. Which values does each weight belong to?


def attention_scores(Q: Tensor, K: Tensor, mask: Tensor | None = None) -> Tensor:
    #: Which of Q, K and V belongs here, and along which axes?
    queries = Q  #: the queries
    keys = K  #: the keys

    #: What is the variance of the dot product of two random vectors of length d_k?
    d_k = Q.shape[-1]  #: d_k
    root = math.sqrt(d_k)  #: √d_k
    inverse_root = 1 / root  #: 1/√d_k
    queries_by_root = queries / root  #: the queries / √d_k
    keys_by_root = keys / root  #: the keys / √d_k

    fourth_root = d_k**0.25  #: the fourth root of d_k
    inverse_fourth_root = d_k**-0.25  #: d_k to the power of −1/4
    queries_by_fourth_root = queries / fourth_root  #: the queries / the fourth root of d_k
    keys_by_fourth_root = keys / fourth_root  #: the keys / the fourth root of d_k
    raw = queries @ keys.mT  #: the scores. Which two axes are left when each query has met each key?
    if mask is not None:
        #: the scores, masked before they are scaled.
        #: Which score has weight 0 after the softmax, whatever the others are?
        masked = raw.masked_fill(~mask, -math.inf)
    #: the scaled scores. What is the variance of the dot product of two random vectors of length d_k?
    scores = raw / root
    if mask is None:
        #: a mask that hides nothing. Which keys may a query attend to when there is no mask?
        all_seen = torch.ones(Q.shape[-2], K.shape[-2], dtype=torch.bool)
        none_hidden = ~all_seen  #: a mask that hides nothing, inverted
    else:
        #: Where is the mask True: where a query may attend, or where it may not?
        seen = mask  #: the mask
        hidden = ~mask  #: the mask, inverted
        #: What should a query that may attend to nothing get?
        sees = mask.any(-1, keepdim=True)  #: the mask of queries that may attend to something
        blind = ~sees  #: the mask of queries that may attend to nothing

        ones = mask.double()  #: the mask as 1 and 0
        zeros = hidden.double()  #: the mask as 0 and 1, inverted
        #: the mask as 0 and −inf. Which score has weight 0 after the softmax, whatever the others are?
        added = torch.zeros(mask.shape).masked_fill(hidden, -math.inf)
    #: the masked, scaled scores. Which score has weight 0 after the softmax, whatever the others are?
    masked_scores = scores if mask is None else scores.masked_fill(~mask, -math.inf)
    return masked_scores
