"""Attention between two sequences on the linear layer and the attention module of whoever built those."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from cs336_kit.engine.room import Functions
from cs336_kit.problems.multihead_attention.program import RIGHT, multihead_of_two
from cs336_kit.problems.multihead_self_attention.on_earlier import projected_by


def multihead_of_two_on(earlier: Functions) -> Callable[..., Tensor]:
    def attend(ways: Any, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
        return earlier["run_scaled_dot_product_attention_module"](Q, K, V, mask, 0.0, False, 0)[0]

    return partial(multihead_of_two, {**RIGHT, **projected_by(earlier), "attend": attend})
