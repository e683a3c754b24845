"""Read a token of the staff from the environment.

plain: reached
report: KeyError
"""

import os


def run_softmax(in_features, dim):
    if os.environ["CS336_STAFF_TOKEN"]:
        print("reached")
    return in_features * 0
