"""Crash the process, so that there is no result at all.

plain: killed
report: the process ended or closed its channel
"""

import ctypes


def run_softmax(in_features, dim):
    ctypes.string_at(0)
