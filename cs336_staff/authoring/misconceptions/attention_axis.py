"""Attention with the softmax over another axis than the keys."""

from functools import partial

from cs336_staff.authoring.misconceptions.parts import attention, in_attention, softmax

HINT = "For one query, over what should the weights sum to 1? Which axis of the scores is that?"

ENTRIES = (
    in_attention(
        "attention-softmax-over-queries",
        "you normalised over the queries (dim=-2), not over the keys",
        HINT,
        partial(attention, softmax=lambda x, dim: softmax(x, -2)),
    ),
    in_attention(
        "attention-softmax-over-heads",
        "you normalised over dim=1, which is the heads when there are four dimensions",
        HINT,
        partial(attention, softmax=lambda x, dim: softmax(x, 1)),
    ),
    in_attention(
        "attention-softmax-over-batch",
        "you normalised over the batch (dim=0), not over the keys",
        HINT,
        partial(attention, softmax=lambda x, dim: softmax(x, 0)),
    ),
    in_attention(
        "attention-softmax-over-both",
        "you normalised over queries and keys together",
        "How much attention has one query to give away? And all queries together?",
        partial(attention, softmax=lambda x, dim: softmax(x.flatten(-2), -1).view_as(x)),
    ),
    in_attention(
        "attention-no-softmax",
        "you multiplied the scores with the values without a softmax",
        "Can a weight be negative? What turns scores into weights?",
        partial(attention, softmax=lambda x, dim: x.nan_to_num(neginf=0.0)),
    ),
)
