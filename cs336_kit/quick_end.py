"""The end of a process that has imported torch."""

import gc
import sys


def end_quickly() -> None:
    """Keep Python from looking through all of torch for garbage before it ends, which takes half a second."""
    if "triton" not in sys.modules:  # which takes what is left for a leak, and prints a page about it
        gc.freeze()
