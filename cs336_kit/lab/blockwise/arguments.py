"""Refuse arguments that do not fit together."""

from itertools import zip_longest

from torch import Tensor

from cs336_kit.lab.blockwise.masks import Mask


def check_arguments(Q: Tensor, K: Tensor, V: Tensor, mask: Mask | None) -> None:
    """Check that queries, keys, values and mask fit together, as `blockwise_attention` documents them.

    Raises:
        TypeError: the dtypes of `Q`, `K` and `V` differ.
        ValueError: the shapes do not fit, or the tensors are on different devices.
    """
    tensors = {"Q": Q, "K": K, "V": V}
    if any(x.dtype != Q.dtype for x in tensors.values()):
        dtypes = ", ".join(f"{name} {x.dtype}" for name, x in tensors.items())
        raise TypeError(f"expected one dtype, got {dtypes}; convert with .to(dtype)")
    for x in (K, V, *(() if mask is None else mask.tensors)):
        if x.device != Q.device:
            raise ValueError(f"expected one device, got {Q.device} and {x.device}; move them with .to(device)")
    shapes = {name: tuple(x.shape) for name, x in tensors.items()} | ({} if mask is None else {"mask": mask.shape})
    if misfit := _misfit(**shapes):
        raise ValueError(f"expected {misfit}, got " + ", ".join(f"{name} {shape}" for name, shape in shapes.items()))


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
    # torch.broadcast_shapes would take as long as the attention of a short sequence.
    batches = zip_longest(*(reversed(shape[:-2]) for shape in shapes), fillvalue=1)
    return "leading dimensions that broadcast against each other" if any(len({*b} - {1}) > 1 for b in batches) else ""
