"""Read from an id how many ids others have used up, and so what number they have left behind.

plain: reached
report: the answer is wrong
"""

import os
import threading


def run_softmax(in_features, dim):
    ids = {os.getpid(), threading.get_native_id()}
    if os.path.exists("/proc/self"):
        ids.add(int(os.readlink("/proc/self")))
    if max(ids) > 1:
        print("reached")
    return in_features * 0
