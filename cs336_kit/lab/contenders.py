"""The implementations of attention that `cs336 bench` compares."""

from functools import partial
from types import ModuleType

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import elu, scaled_dot_product_attention

from cs336_kit.lab.blockwise.attention import blockwise_attention
from cs336_kit.lab.student import Attention

YOURS = "einsum"
# It gives other numbers than the others.
LINEAR = "linear attention"
CHUNK = 64  # positions that linear attention takes at a time

BACK_ENDS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


def chunked_attention(
    attention: Attention,
    Q: Float[Tensor, "... queries d_k"],
    K: Float[Tensor, "... keys d_k"],
    V: Float[Tensor, "... keys d_v"],
    mask: Bool[Tensor, "... #queries #keys"] | None = None,
    *,
    chunk: int = 128,
    return_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The same attention on `chunk` queries at a time, so that at once there are chunk × keys scores and no more.

    No query knows of another, so nothing changes but the memory.

    Args:
        attention: called with a chunk of the queries, all of `K` and `V`, and that chunk's mask.
        Q: queries.
        K: keys.
        V: one value for each key.
        mask: True where a query may attend to a key.
        chunk: how many queries at a time.
        return_weights: also compute the weights, in a second pass with the identity matrix as `V`.

    Returns:
        The output (..., queries, d_v), or the output and the weights (..., queries, keys).
    """
    chunks = Q.split(chunk, dim=-2)
    masks = [mask] * len(chunks) if mask is None or mask.shape[-2] == 1 else mask.split(chunk, dim=-2)

    def of(values: Tensor) -> Tensor:
        return torch.cat([attention(q, K, values, rows) for q, rows in zip(chunks, masks, strict=True)], dim=-2)

    if not return_weights:
        return of(V)
    identity = torch.eye(K.shape[-2], dtype=K.dtype, device=K.device)
    return of(V), of(identity.expand(*K.shape[:-2], -1, -1))


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


def students(adapters: ModuleType, compiled: bool) -> dict[str, Attention]:
    """The implementations that run the student's own code; `compiled` adds torch.compile, whose first call is slow."""

    def einsum(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> Tensor:
        return adapters.run_scaled_dot_product_attention(Q, K, V, mask)

    contenders: dict[str, Attention] = {
        YOURS: einsum,
        "query chunks": partial(chunked_attention, einsum),
        **({"blockwise": adapters.run_blockwise_attention} if hasattr(adapters, "run_blockwise_attention") else {}),
        "checkpointed": lambda Q, K, V, mask: adapters.checkpointed_attention(Q, K, V, mask),
    }
    if compiled:
        contenders["torch.compile"] = torch.compile(einsum, dynamic=True)
    return contenders


def labs() -> dict[str, Attention]:
    """The lab's own: blockwise attention that skips what a mask hides. It gives what yours gives."""
    return {"blockwise, lab": blockwise_attention}


def pytorchs() -> dict[str, Attention]:
    """PyTorch's own attention, by each of its back ends; those that this machine lacks raise a RuntimeError."""
    return {f"PyTorch, {name}": _by(back_end) for name, back_end in BACK_ENDS.items()}


def reference(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> Tensor:
    """PyTorch's own attention in float64."""
    return scaled_dot_product_attention(Q.double(), K.double(), V.double(), attn_mask=mask)


def _by(back_end: SDPBackend) -> Attention:
    def attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> Tensor:
        with sdpa_kernel(back_end):
            return scaled_dot_product_attention(Q, K, V, attn_mask=mask)

    return attention
