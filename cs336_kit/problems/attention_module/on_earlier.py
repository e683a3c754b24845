"""The attention module on the attention of whoever built that."""

from collections.abc import Callable

import torch
from torch import Tensor

from cs336_kit.engine.room import Functions


def module(earlier: Functions) -> Callable[..., tuple[Tensor, Tensor]]:
    """Attention gives its weights where the values are the identity."""

    def run(
        Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, dropout: float, training: bool, seed: int
    ) -> tuple[Tensor, Tensor]:
        if training and dropout:
            raise NotImplementedError("which weights are dropped, nobody can say")
        attend = earlier["run_scaled_dot_product_attention"]
        keys = K.shape[-2]
        return attend(Q, K, V, mask), attend(Q, K, torch.eye(keys, dtype=V.dtype).expand(*K.shape[:-1], keys), mask)

    return run
