"""The functions of the lab for notebooks."""

from collections.abc import Callable
from typing import Any

from rich.console import Console, Group
from torch import Tensor

from lab.attention import Attention, make_call, read_tensor, report_attention
from lab.comparison import compare
from lab.heatmap import heatmap

__all__ = ["compare", "debug", "heatmap"]


def debug(
    Q: Any, K: Any, V: Any, mask: Any = None, *, attention: Callable[..., Tensor] | None = None, values: bool = False
) -> None:
    """Report one call of your attention, or of this one, line by line, as `cs336 debug` does.

    Q (..., queries, d_k), K (..., keys, d_k), V (..., keys, d_v) and mask are tensors or numpy arrays. With `values`,
    what is computed in each line is shown below it.
    """
    given = {"Q": Q, "K": K, "V": V} | ({} if mask is None else {"mask": mask})
    call = make_call("in a notebook", {name: read_tensor(x) for name, x in given.items()})
    Console(highlight=False).print(Group(*report_attention(call, Attention(attention), values)))
