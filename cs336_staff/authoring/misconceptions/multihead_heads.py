"""Multi-head attention that cuts the vectors into heads, or joins the heads, in another way."""

import math

from einops import rearrange
from torch import Tensor

from cs336_staff.authoring.misconceptions.parts import attention, in_multihead

SPLIT_HINT = "After the projection, which components of one token belong to head 0? Are they the ones in your head 0?"
MERGE_HINT = (
    "After attention, which axes does your tensor have, and which two of them must stand side by side to be joined?"
)


def of_d_model(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    return attention(Q / math.sqrt(Q.shape[-3]), K, V, mask)


ENTRIES = (
    in_multihead(
        "multihead-split-by-view",
        "you split the heads with view or reshape and without a transpose",
        SPLIT_HINT,
        split=lambda x, heads: x.reshape(*x.shape[:-2], heads, x.shape[-2], x.shape[-1] // heads),
    ),
    in_multihead(
        "multihead-heads-inner",
        "you split as (d_head heads); the heads are the outer factor, (heads d_head)",
        SPLIT_HINT,
        split=lambda x, heads: rearrange(x, "... sequence (d head) -> ... head sequence d", head=heads),
    ),
    in_multihead(
        "multihead-merge-by-view",
        "you joined the heads with view or reshape and without a transpose",
        MERGE_HINT,
        merge=lambda x: x.reshape(*x.shape[:-3], x.shape[-2], x.shape[-3] * x.shape[-1]),
    ),
    in_multihead(
        "multihead-merge-inner",
        "you joined as (d_head heads); the heads are the outer factor, (heads d_head)",
        MERGE_HINT,
        merge=lambda x: rearrange(x, "... head sequence d -> ... sequence (d head)"),
    ),
    in_multihead(
        "multihead-not-split",
        "you used one head of size d_model, whatever num_heads is",
        "Does your answer change when num_heads changes?",
        split=lambda x, heads: x.unsqueeze(-3),
    ),
    in_multihead(
        "multihead-heads-before-sequence",
        "you attended over the heads of one token, not over the tokens of one head",
        "Which two axes must come last when attention is called, and which ones are batch-like?",
        split=lambda x, heads: rearrange(x, "... sequence (head d) -> ... sequence head d", head=heads),
        mask=lambda length: None,
        merge=lambda x: rearrange(x, "... sequence head d -> ... sequence (head d)"),
    ),
    in_multihead(
        "multihead-scaled-by-d_model",
        "you divided the scores by √d_model, not by √d_head",
        "How long are the two vectors whose dot product is a score?",
        attention=of_d_model,
    ),
)
