"""Import this before torch: it turns garbage collection off until `collect_garbage_again` is called.

Otherwise Python would search all of torch again and again, for a third of a second.
"""

import gc

gc.disable()


def collect_garbage_again() -> None:
    """Turn garbage collection on again, but not for the objects that exist now."""
    gc.freeze()
    gc.enable()
