"""Start threads until there are no more; here 50, for a second.

plain: reached
report: more than 32 threads
"""

import threading
import time


def run_softmax(in_features, dim):
    for _ in range(50):
        threading.Thread(target=time.sleep, args=(1,), daemon=True).start()
    time.sleep(1)
    print("reached")
    return in_features * 0
