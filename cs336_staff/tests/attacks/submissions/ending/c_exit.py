"""The same by the C library, which no patch of `os` sees.

plain: forged
report: the process ended or closed its channel
"""

import ctypes


def run_softmax(in_features, dim):
    ctypes.CDLL(None)._exit(0)
