"""Never come back, in C, where Python handles no signal.

plain: hung
report: no answer within
"""

from collections import deque
from itertools import repeat


def run_softmax(in_features, dim):
    deque(repeat(None), maxlen=0)
