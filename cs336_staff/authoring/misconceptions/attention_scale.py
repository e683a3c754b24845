"""Attention whose scores are divided by something else than √d_k."""

import math
from collections.abc import Callable
from functools import partial

from torch import Tensor

from cs336_staff.authoring.misconceptions.parts import Misconception, attention, in_attention, scale

HINT = "Which length is it that makes the scores large: what is the variance of the dot product of two random vectors?"


def divided(id: str, name: str, divisor: Callable[[Tensor, Tensor, Tensor], float], hint: str = HINT) -> Misconception:
    def wrong(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
        return attention(Q, K, V, mask, score=lambda Q, K: Q @ K.mT / divisor(Q, K, V))

    return in_attention(f"attention-{id}", name, hint, wrong)


def scaled_weights(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    return attention(Q, K, V, mask, score=lambda Q, K: Q @ K.mT) / math.sqrt(Q.shape[-1])


def cosine(Q: Tensor, K: Tensor) -> Tensor:
    return Q / Q.norm(dim=-1, keepdim=True) @ (K / K.norm(dim=-1, keepdim=True)).mT


ENTRIES = (
    divided("no-scale", "you did not divide the scores by √d_k", lambda Q, K, V: 1.0),
    divided("by-d_k", "you divided the scores by d_k, not by √d_k (or by √d_k twice)", lambda Q, K, V: Q.shape[-1]),
    divided("by-root-d_v", "you divided the scores by √d_v, not by √d_k", lambda Q, K, V: math.sqrt(V.shape[-1])),
    divided(
        "by-root-keys",
        "you divided the scores by the root of the number of keys, not by √d_k",
        lambda Q, K, V: math.sqrt(K.shape[-2]),
    ),
    divided(
        "by-root-queries",
        "you divided the scores by the root of the number of queries, not by √d_k",
        lambda Q, K, V: math.sqrt(Q.shape[-2]),
    ),
    divided(
        "by-root-batch",
        "you divided the scores by the root of the first dimension, not by √d_k",
        lambda Q, K, V: math.sqrt(Q.shape[0]),
        "Which axis of Q is axis 0, and which one is d_k?",
    ),
    divided("by-8", "you divided the scores by 8, which is √d_k only when d_k is 64", lambda Q, K, V: 8.0),
    divided("multiplied", "you multiplied the scores by √d_k", lambda Q, K, V: 1 / math.sqrt(Q.shape[-1])),
    divided("fourth-root", "you divided the scores by the fourth root of d_k", lambda Q, K, V: Q.shape[-1] ** 0.25),
    in_attention(
        "attention-scaled-after-softmax",
        "you divided by √d_k after the softmax, not before it",
        "What do the weights of one query sum to after your division?",
        scaled_weights,
    ),
    in_attention(
        "attention-scaled-twice-in-part",
        "you scaled the weights as well as the scores",
        "What do the weights of one query sum to after your second division?",
        lambda Q, K, V, mask: attention(Q, K, V, mask, score=scale) / math.sqrt(Q.shape[-1]),
    ),
    in_attention(
        "attention-cosine",
        "you divided the scores by the lengths of the query and the key",
        "Do the scores change when a query becomes twice as long? Should they?",
        partial(attention, score=cosine),
    ),
)
