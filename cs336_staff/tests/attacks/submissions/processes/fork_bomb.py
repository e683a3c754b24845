"""Start processes that start processes; here sixteen, for a moment.

plain: reached
report: PermissionError
"""

import os
import time


def run_softmax(in_features, dim):
    me = os.getpid()
    for _ in range(4):
        os.fork()
    if os.getpid() != me:
        time.sleep(0.1)
        os._exit(1)
    print("reached")
    return in_features * 0
