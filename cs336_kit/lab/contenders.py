"""The implementations of attention that `cs336 bench` compares."""

from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import elu, scaled_dot_product_attention

from cs336_kit.lab.student import Attention, Student

LINEAR = "linear attention"  # it gives other numbers than the others
CHUNK = 64  # positions that linear attention takes at a time


def chunked_attention(
    Q: Float[Tensor | np.ndarray, "... queries d_k"],
    K: Float[Tensor | np.ndarray, "... keys d_k"],
    V: Float[Tensor | np.ndarray, "... keys d_v"],
    mask: Bool[Tensor | np.ndarray, "... #queries #keys"] | None = None,
    *,
    chunk: int = 128,
    return_weights: bool = False,
    attention: Attention | None = None,
) -> Any:
    """Your attention on `chunk` queries at a time, so that at once there are chunk × keys scores and no more.

    No query knows of another, so nothing changes but the memory.

    Args:
        Q, K, V, mask: as for your attention; or numpy arrays.
        chunk: how many queries at a time.
        return_weights: also compute the weights, in a second pass with the identity matrix as `V`.
        attention: a function of your own; without it, `run_scaled_dot_product_attention` of your adapters.py.

    Returns:
        The output (..., queries, d_v), or the output and the weights (..., queries, keys).
    """
    attend = attention or Student().differentiable
    Q, K, V = map(torch.as_tensor, (Q, K, V))
    chunks = Q.split(chunk, dim=-2)
    mask = None if mask is None else torch.as_tensor(mask)
    masks = [mask] * len(chunks) if mask is None or mask.shape[-2] == 1 else mask.split(chunk, dim=-2)
    values = [V]
    if return_weights:
        values.append(torch.eye(K.shape[-2], dtype=K.dtype, device=K.device).expand(*K.shape[:-2], -1, -1))
    outputs = [torch.cat([attend(q, K, x, m) for q, m in zip(chunks, masks, strict=True)], dim=-2) for x in values]
    return tuple(outputs) if return_weights else outputs[0]


def linear_attention(
    Q: Float[Tensor, "... positions d_k"],
    K: Float[Tensor, "... positions d_k"],
    V: Float[Tensor, "... positions d_v"],
    mask: Bool[Tensor, "positions positions"] | None = None,
) -> Float[Tensor, "... positions d_v"]:
    r"""Causal attention whose weights grow with φ(q) · φ(k) and not with exp(q · k): φ(q) Σ φ(k) vᵀ / (φ(q) · Σ φ(k)).

    The sums over the keys do not depend on the query, so time grows with the length and not with its square. What it
    gives up: it is another function, whose weights are flatter; and no mask but the causal one.

    Args:
        Q, K, V: queries, keys and values; φ(x) = elu(x) + 1.
        mask: not looked at: position t always attends to 0, ..., t.

    Source:
        Katharopoulos et al., Transformers are RNNs (2020), sections 3.2 and 3.3.
    """
    sums = Q.new_zeros(*K.shape[:-2], K.shape[-1], V.shape[-1])  # Σ φ(k) vᵀ over the chunks before
    total = Q.new_zeros(*K.shape[:-2], K.shape[-1], 1)  # and Σ φ(k)
    outputs = []
    for queries, keys, values in zip(*(x.split(CHUNK, dim=-2) for x in (elu(Q) + 1, elu(K) + 1, V)), strict=True):
        within = (queries @ keys.mT).tril()
        outputs.append((queries @ sums + within @ values) / (queries @ total + within.sum(dim=-1, keepdim=True)))
        sums, total = sums + keys.mT @ values, total + keys.sum(dim=-2)[..., None]
    return torch.cat(outputs, dim=-2)


# PyTorch's own. Given the mask as a matrix, it computes every score, the hidden ones too; told that the mask is the
# causal one, it skips what lies behind it.
PYTORCH: dict[str, Attention] = {
    "PyTorch with mask": lambda Q, K, V, mask: scaled_dot_product_attention(Q, K, V, attn_mask=mask),
    "PyTorch is_causal": lambda Q, K, V, mask: scaled_dot_product_attention(Q, K, V, is_causal=True),
}


def attend_exactly(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> Tensor:
    """PyTorch's own attention in float64."""
    return scaled_dot_product_attention(Q.double(), K.double(), V.double(), mask)


def list_contenders(adapters: ModuleType, compiled: bool) -> dict[str, Attention]:
    """Those that run the student's own code, then the others; `compiled` adds torch.compile, which is slow at first."""

    def einsum(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> Tensor:
        return adapters.run_scaled_dot_product_attention(Q, K, V, mask)

    contenders: dict[str, Attention] = {"einsum": einsum}
    contenders["query chunks"] = partial(chunked_attention, attention=einsum)
    if hasattr(adapters, "run_blockwise_attention"):  # a course may leave the problem out
        contenders["blockwise"] = adapters.run_blockwise_attention
    contenders["checkpointed"] = lambda Q, K, V, mask: adapters.checkpointed_attention(Q, K, V, mask)
    if compiled:
        contenders["torch.compile"] = torch.compile(einsum, dynamic=True)
    return contenders | PYTORCH | {LINEAR: linear_attention}
