"""Multi-head attention on the linear layer, the attention and the RoPE of whoever built those."""

from collections.abc import Callable
from functools import partial

from torch import Tensor

from cs336_kit.engine.room import Functions
from cs336_kit.examination.table import Ways
from cs336_kit.problems.multihead_self_attention.program import RIGHT, multihead


def multihead_on(earlier: Functions) -> Callable[..., Tensor]:
    """Self-attention, with RoPE where theta is given."""
    attention = earlier["run_scaled_dot_product_attention"]
    return partial(
        multihead,
        {
            **RIGHT,
            **projected_by(earlier),
            "attend": lambda ways, Q, K, V, mask: attention(Q, K, V, mask),
            "rotate": lambda x, at, theta, length: earlier["run_rope"](x.shape[-1], theta, length, x, at),
        },
    )


def projected_by(earlier: Functions) -> Ways:
    return {"linear": lambda x, W: earlier["run_linear"](W.shape[1], W.shape[0], W, x)}
