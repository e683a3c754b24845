"""Take shared memory, which limits on a process do not count and which outlives it; here 1 MiB.

plain: reached
report: Error
"""

import mmap
import os


def run_softmax(in_features, dim):
    descriptor = os.memfd_create("attack")
    os.write(descriptor, bytes(1 << 20))
    mmap.mmap(descriptor, 1 << 20).close()
    print("reached")
    return in_features * 0
