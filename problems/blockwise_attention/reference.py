"""Blockwise attention: what is carried from block to block. Unused values are other right ways to write it."""

import math

import torch
from torch import Tensor

from problems.scaled_dot_product_attention.reference import attention_scores
from problems.softmax.reference import weigh


# B3 Blockwise attention
def run_blockwise_attention(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, block_size: int | None = None
) -> Tensor:
    values = V  #: the values. Which of Q, K and V belongs here, and along which axes?
    weights = weigh(attention_scores(Q, K, mask))  #: the weights. Over which axis should each query's weights sum to 1?
    lengths = Q.shape[-2], K.shape[-2]
    size = block_size or max(lengths)
    #: Which queries, which keys, and which part of the mask belong to this block?
    whole = mask if mask is None else mask.expand(*mask.shape[:-2], *lengths)  #: the mask of every query and key
    query_blocks = math.ceil(lengths[0] / size)  #: the number of blocks of queries
    key_blocks = math.ceil(lengths[1] / size)  #: the number of blocks of keys

    for rows in cut(lengths[0], size):  #: query block
        tile = None if whole is None else whole[..., rows, :]  #: the mask
        attend_rows(Q[..., rows, :], K, V, tile, size)
    attend_rows(Q, K, V, whole, size)  #: all queries
    for rows in cut(lengths[0], size):  #: query block
        tile = None if whole is None else whole[..., rows, :]  #: the mask
        attend_rows(Q[..., rows, :], K, V, tile, lengths[1])  #: , all at once
    return weights @ V  #: the answer. When are the weighted values divided by the sum, and how often?


def cut(length: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]


def attend_rows(q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, width: int) -> None:
    queries = q  #: the queries. Which queries, which keys, and which part of the mask belong to this block?
    state = torch.full_like((q @ K.mT)[..., :1], -math.inf), torch.zeros(1), torch.zeros(1)
    for columns in cut(K.shape[-2], width):  #: key block
        #: the mask. Which queries, which keys, and which part of the mask belong to this block?
        tile = None if mask is None else mask[..., columns]
        state = add_block(state, q, K[..., columns, :], V[..., columns, :], tile)
    m, total, weighted = state
    #: ℓ of {}, and 1 where it is 0. What is −inf − (−inf), where the mask hides the whole block from a query?
    positive = torch.where(total == 0, 1.0, total)
    log_sum = m + total.log()  #: the logsumexp
    answer = weighted / positive  #: the answer. When are the weighted values divided by the sum, and how often?


def add_block(state: tuple[Tensor, ...], q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
    """Update the largest score, ℓ and o with one more block of keys."""
    before, total, weighted = state
    #: Which queries, which keys, and which part of the mask belong to this block?
    keys = k  #: the keys
    values = v  #: the values
    hidden = None if mask is None else ~mask  #: the mask, inverted, of {}
    #: What is the variance of the dot product of two random vectors of length d_k?
    queries_by_root = q / math.sqrt(q.shape[-1])  #: the queries / √d_k
    raw = q @ k.mT  #: the scores. Which queries meet which keys in this block?
    scores = raw / math.sqrt(q.shape[-1])  #: the scaled scores
    if hidden is not None:
        #: Which queries, which keys, and which part of the mask belong to this block?
        scores = scores.masked_fill(hidden, -math.inf)  #: the masked, scaled scores
    #: What is the largest score so far, before the first block, and after each?
    m_before = before  #: m before {}
    largest = scores.amax(-1, keepdim=True)  #: the largest scores
    m = torch.maximum(before, largest)  #: m after {}
    #: m after {}, and 0 where it is −inf. What is −inf − (−inf), where the mask hides the whole block from a query?
    finite = torch.where(m == -math.inf, 0.0, m)
    shifted = scores - finite  #: s − m
    e = shifted.exp()  #: exp(s − m)
    summed = e.sum(-1, keepdim=True)  #: Σ exp(s − m)
    added = e @ v  #: Σ exp(s − m) v. Which values belong to these keys?
    #: The sums so far are relative to the old maximum: by what factor do they shrink when it grows?
    total_before = total.expand_as(before)  #: ℓ before {}
    weighted_before = weighted  #: o before {}
    less = before - finite  #: m − m′ at {}
    factor = less.exp()  #: the factor exp(m − m′) at {}
    total_shrunk = factor * total  #: ℓ before {}, shrunk
    total_after = total_shrunk + summed  #: ℓ after {}
    weighted_shrunk = (factor * weighted).expand_as(added)  #: o before {}, shrunk
    weighted_after = weighted_shrunk + added  #: o after {}

    factor_or_one = torch.where(m == -math.inf, 1.0, factor)  #: the factor at {}, and 1 where all was hidden
    return m, total_after, weighted_after
