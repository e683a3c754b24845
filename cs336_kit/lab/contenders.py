"""The implementations of attention that `cs336 bench` compares."""

from collections.abc import Callable
from types import ModuleType

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from cs336_kit.lab.blockwise.attention import blockwise_attention

Attention = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

# How many queries `query chunks` takes at a time.
CHUNK = 128
BACK_ENDS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


def students(adapters: ModuleType, compiled: bool) -> dict[str, Attention]:
    """What runs on the student's own code; `compiled` adds torch.compile, which takes its time at the first call."""

    def einsum(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> Tensor:
        return adapters.run_scaled_dot_product_attention(Q, K, V, mask)

    def query_chunks(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> Tensor:
        chunks = zip(Q.split(CHUNK, dim=-2), mask.split(CHUNK, dim=-2), strict=True)
        return torch.cat([einsum(queries, K, V, rows) for queries, rows in chunks], dim=-2)

    contenders: dict[str, Attention] = {
        "einsum": einsum,
        "query chunks": query_chunks,
        **({"blockwise": adapters.run_blockwise_attention} if hasattr(adapters, "run_blockwise_attention") else {}),
        "checkpointed": lambda Q, K, V, mask: adapters.checkpointed_attention(Q, K, V, mask),
    }
    if compiled:
        contenders["torch.compile"] = torch.compile(einsum, dynamic=True)
    return contenders


def labs() -> dict[str, Attention]:
    """The lab's own: what blockwise attention comes to when it skips what a mask hides."""
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
