"""Refuse arguments that broadcasting or type promotion would turn into a wrong answer or an obscure error."""

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

    shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
    if any(tensor.ndim < 2 for tensor in tensors.values()):
        raise ValueError(f"expected tensors of at least two dimensions, got {shapes}")
    if Q.shape[-1] != K.shape[-1]:
        raise ValueError(f"expected Q (..., queries, d_k) and K (..., keys, d_k) with the same d_k, got {shapes}")
    if V is not None and K.shape[-2] != V.shape[-2]:
        raise ValueError(f"expected K (..., keys, d_k) and V (..., keys, d_v) with the same keys, got {shapes}")
    rows_and_columns = (Q.shape[-2], K.shape[-2])
    if mask is not None and any(m not in (1, n) for m, n in zip(mask.shape[-2:], rows_and_columns, strict=True)):
        raise ValueError(f"expected a mask that broadcasts to (..., queries, keys) = {rows_and_columns}, got {shapes}")
    try:
        torch.broadcast_shapes(*(tensor.shape[:-2] for tensor in tensors.values()))
    except RuntimeError:
        raise ValueError(f"expected leading dimensions that broadcast against each other, got {shapes}") from None


def _listed(tensors: dict[str, Tensor], attribute: str) -> str:
    return ", ".join(f"{name} {getattr(tensor, attribute)}" for name, tensor in tensors.items())
