"""Scaled dot-product attention in steps."""

import math

import torch
from torch import Tensor

from whichline.way.steps import Steps

VARIANCE = "What is the variance of the dot product of two random vectors of length d_k?"
MASKED = "Which score has weight 0 after the softmax, whatever the others are?"
ROWS = "Over which axis should each query's weights sum to 1?"
NOTHING = "What should a query that may attend to nothing get?"


def follow_attention(step: Steps, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    step.section = "3 Attention"
    d_k = Q.shape[-1]
    for name, x in (("queries", Q), ("keys", K), ("values", V)):
        step(f"the {name}", x, "Which of Q, K and V belongs here, and along which axes?")
    step("d_k", float(d_k), VARIANCE)
    step("√d_k", math.sqrt(d_k), VARIANCE)
    step("1/√d_k", 1 / math.sqrt(d_k), VARIANCE)
    step("the fourth root of d_k", d_k**0.25)
    step("d_k to the power of −1/4", d_k**-0.25)
    for name, x in (("queries", Q), ("keys", K)):
        step(f"the {name} / √d_k", x / math.sqrt(d_k), VARIANCE)
        step(f"the {name} / the fourth root of d_k", x / d_k**0.25)
    raw = step("the scores", Q @ K.mT, "Which two axes are left when each query has met each key?")
    if mask is not None:
        step("the scores, masked before they are scaled", raw.masked_fill(~mask, -math.inf), MASKED)
    scores = step("the scaled scores", raw / math.sqrt(d_k), VARIANCE)
    if mask is None:
        all_seen = torch.ones(Q.shape[-2], K.shape[-2], dtype=torch.bool)
        step("a mask that hides nothing", all_seen, "Which keys may a query attend to when there is no mask?")
        step("a mask that hides nothing, inverted", ~all_seen)
    else:
        step("the mask", mask, "Where is the mask True: where a query may attend, or where it may not?")
        step("the mask, inverted", ~mask, "Where is the mask True: where a query may attend, or where it may not?")
        sees = step("the mask of queries that may attend to something", mask.any(-1, keepdim=True), NOTHING)
        step("the mask of queries that may attend to nothing", ~sees, NOTHING)
        step("the mask as 1 and 0", mask.double())
        step("the mask as 0 and 1, inverted", (~mask).double())
        step("the mask as 0 and −inf", torch.zeros(mask.shape).double().masked_fill(~mask, -math.inf), MASKED)
        scores = scores.masked_fill(~mask, -math.inf)
    step("the masked, scaled scores", scores, MASKED)
    return step("the answer", follow_weights(step, scores) @ V, "Which values does each weight belong to?")


def follow_weights(step: Steps, scores: Tensor) -> Tensor:
    """The weights of scores, by a softmax over the keys."""
    largest = step("each query's largest score", scores.amax(-1, keepdim=True), ROWS)
    step("each query's largest score, without that axis", largest.squeeze(-1))
    finite = torch.where(largest == -math.inf, 0.0, largest)
    step("each query's largest score, and 0 where that is −inf", finite, NOTHING)
    step("the scores − each query's largest", scores - finite)
    e = step("exp of the scores", (scores - finite).exp(), ROWS)
    step("exp of the scores, without a maximum subtracted", scores.exp())
    total = step("the sum for each query", e.sum(-1, keepdim=True), ROWS)
    positive = torch.where(total == 0, 1.0, total)
    step("the sum for each query, and 1 where it is 0", positive, NOTHING)
    step("log Σ exp of each query's scores", finite + positive.log(), ROWS)
    return step("the weights", e / positive, ROWS)
