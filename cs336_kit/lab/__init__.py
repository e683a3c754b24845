"""The lab: looking at attention as the student's code computes it, from the command line or from a notebook.

For notebooks, `from cs336_kit.lab import heatmap, debug, flow, compare, chunked_attention`; see docs/lab.md.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cs336_kit.lab.notebook import chunked_attention, compare, debug, flow, heatmap

__all__ = ["chunked_attention", "compare", "debug", "flow", "heatmap"]


def __getattr__(name: str) -> Any:
    """Import torch when a function is asked for: the commands' help does without."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cs336_kit.lab import notebook

    return getattr(notebook, name)
