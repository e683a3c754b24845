"""Refuse arguments that do not fit together."""

import numpy as np
from torch import Tensor

from cs336_kit.lab.blockwise.masks import Mask


def check_arguments(Q: Tensor, K: Tensor, V: Tensor, mask: Mask | None) -> tuple[int, ...]:
    """Check that queries, keys, values and mask fit together, as `blockwise_attention` documents them.

    Returns:
        The batch-like dimensions that all of them broadcast to.

    Raises:
        TypeError: the dtypes of `Q`, `K` and `V` differ.
        ValueError: the shapes do not fit, or the tensors are on different devices.
    """
    if not Q.dtype == K.dtype == V.dtype:
        raise TypeError(f"expected one dtype, got Q {Q.dtype}, K {K.dtype}, V {V.dtype}; convert with .to(dtype)")
    for x in (K, V, *(() if mask is None else mask.tensors)):
        if x.device != Q.device:
            raise ValueError(f"expected one device, got {Q.device} and {x.device}; move them with .to(device)")
    shapes = [tuple(x.shape) for x in (Q, K, V)] + ([] if mask is None else [mask.shape])
    batches = [shape[:-2] for shape in shapes]
    misfit, batch = _misfit(*shapes), batches[0]
    if any(other != batch for other in batches):  # torch.broadcast_shapes takes as long as a short attention
        try:
            batch = np.broadcast_shapes(*batches)
        except ValueError:
            misfit = misfit or "leading dimensions that broadcast against each other"
    if misfit:
        got = ", ".join(f"{name} {shape}" for name, shape in zip(("Q", "K", "V", "mask"), shapes, strict=False))
        raise ValueError(f"expected {misfit}, got {got}")
    return batch


def _misfit(Q: tuple[int, ...], K: tuple[int, ...], V: tuple[int, ...], mask: tuple[int, ...] = (1, 1)) -> str:
    """Say what the shapes should be, if they do not fit."""
    shapes = (Q, K, V, mask)
    if any(len(shape) < 2 for shape in shapes):
        return "tensors of at least two dimensions"
    if Q[-1] != K[-1]:
        return "Q (..., queries, d_k) and K (..., keys, d_k) with the same d_k"
    if K[-2] != V[-2]:
        return "K (..., keys, d_k) and V (..., keys, d_v) with the same keys"
    queries_and_keys = (Q[-2], K[-2])
    if any(size not in (1, whole) for size, whole in zip(mask[-2:], queries_and_keys, strict=True)):
        return f"a mask that broadcasts to (..., queries, keys) = {queries_and_keys}"
    return ""
