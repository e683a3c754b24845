"""Refuse arguments that broadcasting or type promotion would turn into a wrong answer or an obscure error."""

from itertools import zip_longest

import torch
from torch import Tensor


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
            raise TypeError(f"expected a boolean mask (True = may attend), got {mask.dtype}; convert it with .bool()")
        tensors["mask"] = mask
    if any(tensor.device != Q.device for tensor in tensors.values()):
        raise ValueError(f"expected one device, got {_listed(tensors, 'device')}; move them with .to(device)")

    if misfit := _misfit(tensors, mask):
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
        raise ValueError(f"expected {misfit}, got {shapes}")


def _misfit(tensors: dict[str, Tensor], mask: Tensor | None) -> str:
    """What the shapes should be, if they are not."""
    if any(tensor.ndim < 2 for tensor in tensors.values()):
        return "tensors of at least two dimensions"
    Q, K, V = tensors["Q"], tensors["K"], tensors.get("V")
    if Q.shape[-1] != K.shape[-1]:
        return "Q (..., queries, d_k) and K (..., keys, d_k) with the same d_k"
    if V is not None and K.shape[-2] != V.shape[-2]:
        return "K (..., keys, d_k) and V (..., keys, d_v) with the same keys"
    rows_and_columns = (Q.shape[-2], K.shape[-2])
    if mask is not None and any(m not in (1, n) for m, n in zip(mask.shape[-2:], rows_and_columns, strict=True)):
        return f"a mask that broadcasts to (..., queries, keys) = {rows_and_columns}"
    leading = [reversed(tensor.shape[:-2]) for tensor in tensors.values()]
    # torch.broadcast_shapes would take as long as the attention of a short sequence.
    if any(len({*sizes} - {1}) > 1 for sizes in zip_longest(*leading, fillvalue=1)):
        return "leading dimensions that broadcast against each other"
    return ""


def _listed(tensors: dict[str, Tensor], attribute: str) -> str:
    return ", ".join(f"{name} {getattr(tensor, attribute)}" for name, tensor in tensors.items())
