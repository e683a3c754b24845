"""Blockwise attention."""

from collections.abc import Callable

from torch import Tensor

from cs336_kit.engine.room import Functions, Room
from cs336_kit.problems.blockwise_attention.examination import examine_blockwise
from cs336_kit.problems.scaled_dot_product_attention import tell_query


def on_earlier(earlier: Functions) -> Callable[..., Tensor]:
    """In one block it is the attention of whoever built that."""
    return lambda Q, K, V, mask=None, block_size=None: earlier["run_scaled_dot_product_attention"](Q, K, V, mask)


ROOM = Room(
    examinations={"run_blockwise_attention": examine_blockwise},
    on_paper=tell_query,
    on_earlier={"run_blockwise_attention": on_earlier},
)
