"""The start of a process that imports torch: imported first, it keeps Python from looking for garbage meanwhile.

Python would look through all of torch again and again, for half a second.
"""

import gc

gc.disable()


def look_again() -> None:
    """Have Python look for garbage from now on, but not in what there is now, which stays."""
    gc.freeze()
    gc.enable()
