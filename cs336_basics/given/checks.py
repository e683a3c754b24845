"""Refuse arguments that broadcasting or type promotion would turn into a wrong answer or an obscure error."""

from itertools import zip_longest

import torch
from torch import Tensor

# A mask that is added to the scores hides a key by -inf, or by a number so low that its weight vanishes.
ADDED = -50.0


def check_attention_arguments(Q: Tensor, K: Tensor, V: Tensor | None = None, mask: Tensor | None = None) -> None:
    """Check that queries, keys, values and mask fit together, as `scaled_dot_product_attention` documents them.

    Raises:
        TypeError: the mask is not boolean, or the dtypes of `Q`, `K` and `V` differ.
        ValueError: the shapes do not fit, or the tensors are on different devices.
    """
    tensors = {"Q": Q, "K": K} if V is None else {"Q": Q, "K": K, "V": V}
    if any(tensor.dtype != Q.dtype for tensor in tensors.values()):
        raise TypeError(f"expected one dtype, got {_listed(tensors, 'dtype')}; convert with .to(dtype)")
    if mask is not None:
        if mask.dtype != torch.bool:
            raise TypeError(f"expected a boolean mask (True = may attend), got {mask.dtype}; {as_boolean(mask)}")
        tensors["mask"] = mask
    if any(tensor.device != Q.device for tensor in tensors.values()):
        raise ValueError(f"expected one device, got {_listed(tensors, 'device')}; move them with .to(device)")
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if misfit := _misfit(shapes):
        raise ValueError(f"expected {misfit}, got {', '.join(f'{name} {shape}' for name, shape in shapes.items())}")


def as_boolean(mask: Tensor) -> str:
    """Say how to make a mask of another dtype boolean, judging by its numbers."""
    other = mask[mask != 0]
    if not other.numel():
        return "it holds only zeros: `mask == 0` if they are added to the scores and hide nothing, else `mask.bool()`"
    if (other == 1).all():
        return "it holds 1 and 0: `mask.bool()` if 1 means may attend, `mask == 0` if 1 means hidden"
    if (other <= ADDED).all():
        return "it looks like one to be added to the scores, 0 where a query may attend: `mask == 0` makes it boolean"
    return "its numbers are neither 1 and 0 nor 0 and -inf, so write down which keys a query may attend to"


def _misfit(shapes: dict[str, tuple[int, ...]]) -> str:
    """Say what the shapes should be, if they do not fit."""
    if any(len(shape) < 2 for shape in shapes.values()):
        return "tensors of at least two dimensions"
    Q, K = shapes["Q"], shapes["K"]
    if Q[-1] != K[-1]:
        return "Q (..., queries, d_k) and K (..., keys, d_k) with the same d_k"
    if "V" in shapes and K[-2] != shapes["V"][-2]:
        return "K (..., keys, d_k) and V (..., keys, d_v) with the same keys"
    rows_and_columns = (Q[-2], K[-2])
    if "mask" in shapes and any(m not in (1, n) for m, n in zip(shapes["mask"][-2:], rows_and_columns, strict=True)):
        return f"a mask that broadcasts to (..., queries, keys) = {rows_and_columns}"
    leading = [reversed(shape[:-2]) for shape in shapes.values()]
    # torch.broadcast_shapes would take as long as the attention of a short sequence.
    if any(len({*sizes} - {1}) > 1 for sizes in zip_longest(*leading, fillvalue=1)):
        return "leading dimensions that broadcast against each other"
    return ""


def _listed(tensors: dict[str, Tensor], attribute: str) -> str:
    return ", ".join(f"{name} {getattr(tensor, attribute)}" for name, tensor in tensors.items())
