"""Raise an exception of 2 MiB, for every report to hold.

plain: flooded
report: ValueError: xxxx
"""


def run_softmax(in_features, dim):
    raise ValueError("x" * (2 << 20))
