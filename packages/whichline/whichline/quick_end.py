"""The end of a process that has imported torch."""

import gc
import os
import sys


def end_quickly() -> None:
    """Keep Python from searching all of torch for garbage before it ends, which takes half a second."""
    gc.freeze()
    if "triton" in sys.modules:  # it would report the remaining objects as leaks
        sys.stderr.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
