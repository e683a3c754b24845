"""Multi-head attention with weights in another place, or with one of them missing."""

import torch
from einops import rearrange
from torch import Tensor

from cs336_staff.authoring.misconceptions.parts import in_multihead, linear

LAYOUT_HINT = "Which rows of the joint weight are W_Q? In which order do the two lines that join and cut it name them?"


def interleaved(Q: Tensor, K: Tensor, V: Tensor, num_heads: int) -> tuple[Tensor, ...]:
    joint = torch.cat((Q, K, V))
    return tuple(rearrange(joint, "(head three d) d_in -> three (head d) d_in", head=num_heads, three=3))


def in_threes(Q: Tensor, K: Tensor, V: Tensor, num_heads: int) -> tuple[Tensor, ...]:
    return tuple(rearrange(torch.cat((Q, K, V)), "(d three) d_in -> three d d_in", three=3))


ENTRIES = (
    in_multihead(
        "multihead-qkv-by-head",
        "you cut the joint weight as (heads 3 d_head), not as (3 heads d_head)",
        LAYOUT_HINT,
        weights=interleaved,
    ),
    in_multihead(
        "multihead-qkv-by-row",
        "you cut the joint weight as (d_model 3), not as (3 d_model)",
        LAYOUT_HINT,
        weights=in_threes,
    ),
    in_multihead(
        "multihead-queries-keys-swapped",
        "you swapped the weights of queries and keys",
        LAYOUT_HINT,
        weights=lambda Q, K, V, num_heads: (K, Q, V),
    ),
    in_multihead(
        "multihead-keys-values-swapped",
        "you swapped the weights of keys and values",
        LAYOUT_HINT,
        weights=lambda Q, K, V, num_heads: (Q, V, K),
    ),
    in_multihead(
        "multihead-no-output-projection",
        "you left out the output projection",
        "Which of the four weights does your answer not depend on?",
        output=lambda x, W: x,
    ),
    in_multihead(
        "multihead-output-transposed",
        "you multiplied by the weight of the output projection the wrong way round",
        "Which axis of W_O should meet the joined heads, the first or the second?",
        output=lambda x, W: linear(x, W.T),
    ),
    in_multihead(
        "multihead-qkv-transposed",
        "you multiplied by the weights of queries, keys and values the wrong way round",
        "Which axis of W_Q should meet the input, the first or the second?",
        weights=lambda Q, K, V, num_heads: (Q.T, K.T, V.T),
    ),
)
