"""Attention on the wrong tensor or along the wrong axis."""

from functools import partial

import torch
from torch import Tensor

from cs336_staff.authoring.misconceptions.parts import attention, in_attention, scale


def three_dimensions(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    batch, _, _ = Q.shape
    masks = [None] * batch if mask is None else mask.expand(batch, -1, -1)
    return torch.stack([attention(*each) for each in zip(Q, K, V, masks, strict=True)])


def reshaped(Q: Tensor, K: Tensor) -> Tensor:
    return scale(Q, K.reshape(*K.shape[:-2], K.shape[-1], K.shape[-2]).mT)


ENTRIES = (
    in_attention(
        "attention-keys-reshaped",
        "you reshaped K to (d_k, keys) where it should be transposed",
        "After a reshape, is the first column of the result still the first key?",
        partial(attention, score=reshaped),
    ),
    in_attention(
        "attention-queries-keys-swapped",
        "you multiplied K by Qᵀ: rows should be queries and columns keys",
        "Which shape should the scores have, (queries, keys) or (keys, queries)? Which has yours?",
        partial(attention, score=lambda Q, K: scale(K, Q)),
    ),
    in_attention(
        "attention-keys-values-swapped",
        "you swapped keys and values",
        "Which of K and V is compared with the queries, and which one is averaged?",
        lambda Q, K, V, mask: attention(Q, V, K, mask),
    ),
    in_attention(
        "attention-values-are-keys",
        "you averaged the keys, not the values",
        "Which of K and V is compared with the queries, and which one is averaged?",
        lambda Q, K, V, mask: attention(Q, K, K, mask),
    ),
    in_attention(
        "attention-first-batch-keys",
        "you used the keys and values of the first sequence for all of them",
        "Which axis holds the sequences of a batch? What does K[0] drop?",
        lambda Q, K, V, mask: attention(Q, K[:1], V[:1], mask) if Q.ndim > 2 else attention(Q, K, V, mask),
    ),
    in_attention(
        "attention-three-dimensions",
        "your code needs exactly three dimensions",
        "Which dimensions does attention work on? Can whatever stands before them not matter?",
        three_dimensions,
    ),
)
