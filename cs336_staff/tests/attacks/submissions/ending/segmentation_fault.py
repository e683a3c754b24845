"""Crash the process, so that there is no result at all.

plain: killed
report: the process ended with a segmentation fault
"""

import ctypes


def run_softmax(in_features, dim):
    ctypes.string_at(0)
