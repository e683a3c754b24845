"""Attention between two sequences in steps, those of self-attention, and the mistakes that it adds."""

import torch
from torch import Tensor

from cs336_staff.authoring.table import Way, Ways, ways_to
from cs336_staff.problems.multihead_self_attention import program as heads
from cs336_staff.problems.scaled_dot_product_attention import program as attention


def multihead_of_two(
    ways: Ways,
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
) -> Tensor:
    """Attention whose steps are done in these ways."""
    weights = (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    return heads.attend_in_heads(
        ways, num_heads, weights, (query, key, value), lambda Q, K: ways["allowed"](mask, Q, K)
    )


def for_heads(mask: Tensor | None, Q: Tensor, K: Tensor) -> Tensor | None:
    """A mask that broadcasts to (..., heads, queries, keys)."""
    if mask is None:
        return None
    if mask.ndim == Q.ndim - PADDING:
        mask = mask.unsqueeze(-2)
    return mask.unsqueeze(-3) if mask.ndim == Q.ndim - MASK else mask


PADDING, MASK, OF_HEADS = 2, 1, 0  # dimensions that a mask has fewer than the queries of all heads
KINDS = {"masks": (PADDING, MASK, OF_HEADS), "padding": (PADDING,), "mask": (MASK,), "head-mask": (OF_HEADS,)}
RIGHT: Ways = {**heads.RIGHT, "allowed": for_heads, "empty": attention.RIGHT["empty"]}


def read_as(kind: str, way: Way) -> Way:
    """Masks of this kind made into something else than the right mask of the scores."""

    def allowed(mask: Tensor | None, Q: Tensor, K: Tensor) -> Tensor | None:
        right = for_heads(mask, Q, K)
        return right if mask is None or Q.ndim - mask.ndim not in KINDS[kind] else way(right)

    return allowed


def by_dimensions(mask: Tensor) -> Tensor:
    """A mask of two dimensions as a padding mask, one of three as the same for all heads."""
    return mask.view(mask.shape[0], *(1,) * (4 - mask.ndim), *mask.shape[1:]) if mask.ndim in (2, 3) else mask


def causal_too(mask: Tensor | None, Q: Tensor, K: Tensor) -> Tensor:
    right, earlier = for_heads(mask, Q, K), torch.ones(Q.shape[-2], K.shape[-2], dtype=torch.bool).tril()
    return earlier if right is None else right & earlier


def padding_zeroed(S: Tensor, mask: Tensor, softmax: Way) -> Tensor:
    """The weights where keys and values that are padding are 0, and other masks are as they should be."""
    is_padding = mask.shape[-2] == 1
    return softmax(S * mask) * mask if is_padding else RIGHT["hide"](S, mask, softmax)


# Ways to read a mask of one of these kinds.
READINGS: tuple[tuple[str, Way, tuple[str, ...]], ...] = (
    ("ignored", lambda mask: None, ("masks", "padding", "mask", "head-mask")),
    ("inverted", torch.logical_not, ("masks", "padding", "mask")),
    ("along-queries", lambda mask: mask.mT, ("padding", "masks")),
    ("of-first-sequence", lambda mask: mask[:1], ("masks", "padding", "mask")),
    ("of-first-head", lambda mask: mask[..., :1, :, :], ("head-mask",)),
    ("meets-heads", lambda mask: mask.squeeze(-3), ("mask", "padding")),
    ("meets-queries", lambda mask: mask.squeeze(-2).squeeze(-2), ("padding",)),
)
ALLOWED = ways_to(
    "allowed",
    ("causal", causal_too),
    ("causal-without-mask", lambda mask, Q, K: causal_too(mask, Q, K) if mask is None else for_heads(mask, Q, K)),
    ("all-padding", lambda mask, Q, K: None if mask is None else mask[..., None, None, :]),
    ("kind-by-dimensions", lambda mask, Q, K: None if mask is None else by_dimensions(mask)),
    *((f"{kind}-{id}", read_as(kind, way)) for id, way, kinds in READINGS for kind in kinds),
)
HIDE = ways_to("hide", ("padding-keeps-weight", padding_zeroed))
SEQUENCES = ways_to(
    "sequences",
    ("self-attention", lambda q, k, v: (q, q, q)),
    ("values-from-key", lambda q, k, v: (q, k, k)),
    ("keys-values-swapped", lambda q, k, v: (q, v, k)),
    ("keys-from-value", lambda q, k, v: (q, v, v)),
    ("keys-from-query", lambda q, k, v: (q, q, v)),
    ("queries-keys-swapped", lambda q, k, v: (k, q, v)),
)

NOTHING = ways_to("empty", ("nothing-mean", lambda W, mask: W.where(mask.any(-1, keepdim=True), 1 / W.shape[-1])))
