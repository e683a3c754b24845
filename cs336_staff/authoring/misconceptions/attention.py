"""Attention that is wrong."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from cs336_staff.authoring.misconceptions.entry import Misconception, in_attention
from cs336_staff.authoring.parts import Part, attention, causal, hide, scale, softmax


def products(Q: Tensor, K: Tensor) -> Tensor:
    return Q @ K.mT


def cosine(Q: Tensor, K: Tensor) -> Tensor:
    return Q / Q.norm(dim=-1, keepdim=True) @ (K / K.norm(dim=-1, keepdim=True)).mT


def three_dimensions(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    batch, _, _ = Q.shape
    masks = [None] * batch if mask is None else mask.expand(batch, -1, -1)
    return torch.stack([attention(*each) for each in zip(Q, K, V, masks, strict=True)])


def scaling_in_place(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    Q /= math.sqrt(Q.shape[-1])
    return attention(Q, K, V, mask, score=products)


def with_nan(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    return softmax(scale(Q, K) if mask is None else hide(scale(Q, K), mask), -1) @ V


# Masks: True where a query may attend


def required(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        raise TypeError("bad operand type for unary ~: 'NoneType'")
    return attention(Q, K, V, mask)


def always_causal(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    lower = causal(Q.shape[-2], K.shape[-2])
    return attention(Q, K, V, lower if mask is None else mask & lower)


def causal_only(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    return attention(Q, K, V, causal(Q.shape[-2], K.shape[-2]))


def causal_without_mask(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    return attention(Q, K, V, causal(Q.shape[-2], K.shape[-2]) if mask is None else mask)


def zeroed(Q: Tensor, K: Tensor, mask: Tensor | None) -> Tensor:
    """The weights of all keys, and then 0 for those that the mask forbids."""
    weights = softmax(scale(Q, K), -1)
    return weights if mask is None else weights * mask


def renormalised(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    kept = zeroed(Q, K, mask)
    return kept / kept.sum(-1, keepdim=True) @ V


def in_divisor(id: str, what: str, divisor: Part) -> Misconception:
    """Scores that are divided by `divisor(Q, K)`."""
    return in_attention(id, what, score=lambda Q, K: Q @ K.mT / divisor(Q, K))


def by_root_d_v(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    return attention(Q, K, V, mask, score=lambda Q, K: Q @ K.mT / math.sqrt(V.shape[-1]))


def in_fill(id: str, number: str, value: float) -> Misconception:
    def fill(scores: Tensor, mask: Tensor) -> Tensor:
        return scores.masked_fill(~mask, max(value, torch.finfo(scores.dtype).min))

    return in_attention(id, f"fills forbidden scores with {number}, not with -inf", hide=fill)


ENTRIES = (
    # The scale
    in_divisor("attention-no-scale", "does not divide the scores by √d_k", lambda Q, K: 1.0),
    in_divisor(
        "attention-by-d_k", "divides the scores by d_k, not by √d_k (or by √d_k twice)", lambda Q, K: Q.shape[-1]
    ),
    in_attention("attention-by-root-d_v", "divides the scores by √d_v, not by √d_k", by_root_d_v),
    in_divisor(
        "attention-by-root-keys",
        "divides the scores by the root of the number of keys, not by √d_k",
        lambda Q, K: math.sqrt(K.shape[-2]),
    ),
    in_divisor(
        "attention-by-root-queries",
        "divides the scores by the root of the number of queries, not by √d_k",
        lambda Q, K: math.sqrt(Q.shape[-2]),
    ),
    in_divisor(
        "attention-by-root-batch",
        "divides the scores by the root of the first dimension, not by √d_k",
        lambda Q, K: math.sqrt(Q.shape[0]),
    ),
    in_divisor("attention-by-8", "divides the scores by 8, which is √d_k only when d_k is 64", lambda Q, K: 8.0),
    in_divisor("attention-multiplied", "multiplies the scores by √d_k", lambda Q, K: 1 / math.sqrt(Q.shape[-1])),
    in_divisor(
        "attention-fourth-root", "divides the scores by the fourth root of d_k", lambda Q, K: Q.shape[-1] ** 0.25
    ),
    in_attention(
        "attention-scaled-after-softmax",
        "divides by √d_k after the softmax, not before it",
        lambda Q, K, V, mask: attention(Q, K, V, mask, score=products) / math.sqrt(Q.shape[-1]),
    ),
    in_attention(
        "attention-scaled-twice-in-part",
        "scales the weights as well as the scores",
        lambda Q, K, V, mask: attention(Q, K, V, mask) / math.sqrt(Q.shape[-1]),
    ),
    in_attention("attention-cosine", "divides the scores by the lengths of the query and the key", score=cosine),
    # The axis of the softmax
    in_attention(
        "attention-softmax-over-queries",
        "normalises over the queries (dim=-2), not over the keys",
        softmax=lambda x, dim: softmax(x, -2),
    ),
    in_attention(
        "attention-softmax-over-heads",
        "normalises over dim=1, which is the heads when there are four dimensions",
        softmax=lambda x, dim: softmax(x, 1),
    ),
    in_attention(
        "attention-softmax-over-batch",
        "normalises over the batch (dim=0), not over the keys",
        softmax=lambda x, dim: softmax(x, 0),
    ),
    in_attention(
        "attention-softmax-over-both",
        "normalises over queries and keys together",
        softmax=lambda x, dim: softmax(x.flatten(-2), -1).view_as(x),
    ),
    in_attention(
        "attention-no-softmax",
        "multiplies the scores with the values without a softmax",
        softmax=lambda x, dim: x.nan_to_num(neginf=0.0),
    ),
    # The mask taken for something else
    in_attention(
        "attention-mask-inverted",
        "hides what the mask allows and keeps what it forbids",
        hide=lambda scores, mask: hide(scores, ~mask),
    ),
    in_attention("attention-mask-ignored", "does not use the mask", lambda Q, K, V, mask: attention(Q, K, V, None)),
    in_attention(
        "attention-mask-after-softmax",
        "zeroes weights after the softmax, so that the rest no longer sums to 1",
        lambda Q, K, V, mask: zeroed(Q, K, mask) @ V,
    ),
    in_attention(
        "attention-mask-renormalised",
        "zeroes weights after the softmax and divides by what is left, which may be 0",
        renormalised,
    ),
    in_attention(
        "attention-mask-added", "adds the mask to the scores as 0 and 1", hide=lambda scores, mask: scores + mask
    ),
    in_attention(
        "attention-mask-times-infinity",
        "multiplies the mask by -inf, and 0 times infinity is NaN",
        hide=lambda scores, mask: scores + (~mask).to(scores.dtype) * -torch.inf,
    ),
    in_attention(
        "attention-mask-on-values",
        "applies the mask to the values, not to the scores",
        lambda Q, K, V, mask: attention(Q, K, V if mask is None else V * mask.any(-2).unsqueeze(-1), None),
    ),
    in_attention("attention-mask-required", "needs a mask, but there may be none (mask=None)", required),
    in_attention("attention-none-is-causal", "uses a causal mask when no mask is given", causal_without_mask),
    in_attention("attention-always-causal", "adds a causal mask of its own to the one that is given", always_causal),
    in_attention(
        "attention-causal-instead", "uses a causal mask of its own and not the one that is given", causal_only
    ),
    in_attention(
        "attention-mask-transposed",
        "transposes the mask: its rows are queries and its columns keys",
        hide=lambda scores, mask: hide(scores, mask.mT),
    ),
    in_attention(
        "attention-mask-squeezed",
        "drops the axes of size 1 from the mask, so that it broadcasts along the wrong axis",
        hide=lambda scores, mask: hide(scores, mask.squeeze()),
    ),
    in_attention(
        "attention-mask-of-first-batch",
        "uses the mask of the first sequence for all of them",
        hide=lambda scores, mask: hide(scores, mask[:1] if mask.ndim > 2 else mask),
    ),
    # Forbidden scores that are not low enough
    in_fill("attention-fill-0", "0 (or multiplies them by the mask)", 0.0),
    in_fill("attention-fill-1", "-1", -1.0),
    in_fill("attention-fill-10", "-10", -10.0),
    in_fill("attention-fill-100", "-100", -100.0),
    in_fill("attention-fill-1e4", "-1e4", -1e4),
    in_fill("attention-fill-1e9", "-1e9", -1e9),
    in_fill("attention-fill-lowest", "the lowest number there is (finfo.min)", -math.inf),
    # Another tensor, or another axis
    in_attention(
        "attention-keys-reshaped",
        "reshapes K to (d_k, keys) where it should be transposed",
        score=lambda Q, K: scale(Q, K.reshape(*K.shape[:-2], K.shape[-1], K.shape[-2]).mT),
    ),
    in_attention(
        "attention-queries-keys-swapped",
        "multiplies K by Qᵀ: rows should be queries and columns keys",
        score=lambda Q, K: scale(K, Q),
    ),
    in_attention(
        "attention-keys-values-swapped",
        "swaps keys and values",
        lambda Q, K, V, mask: attention(Q, V, K, mask),
    ),
    in_attention(
        "attention-values-are-keys",
        "averages the keys, not the values",
        lambda Q, K, V, mask: attention(Q, K, K, mask),
    ),
    in_attention(
        "attention-first-batch-keys",
        "uses the keys and values of the first sequence for all of them",
        lambda Q, K, V, mask: attention(Q, K[:1], V[:1], mask) if Q.ndim > 2 else attention(Q, K, V, mask),
    ),
    in_attention("attention-three-dimensions", "needs exactly three dimensions", three_dimensions),
    # Right but for the type, the inputs, the gradients, or the rows with nothing to attend to
    in_attention("attention-in-place", "changes Q in place", scaling_in_place),
    in_attention(
        "attention-dropout", "leaves dropout on", softmax=lambda x, dim: F.dropout(softmax(x, dim), 0.1), alone=True
    ),
    in_attention(
        "attention-float64-out",
        "gives float64 whatever the inputs are",
        lambda Q, K, V, mask: attention(Q.double(), K.double(), V.double(), mask),
    ),
    in_attention(
        "attention-float32-out",
        "gives float32 whatever the inputs are",
        lambda Q, K, V, mask: attention(Q.float(), K.float(), V.float(), mask),
    ),
    in_attention("attention-nan-for-nothing", "gives NaN where a query may attend to nothing", with_nan),
    in_attention(
        "attention-detached-weights",
        "cuts the weights off from autograd",
        softmax=lambda x, dim: softmax(x, dim).detach(),
    ),
    in_attention(
        "attention-detached",
        "cuts the answer off from autograd",
        lambda Q, K, V, mask: attention(Q, K, V, mask).detach(),
    ),
)
