"""Compute in thirty threads, to slow the submission beside it.

plain: refused
report: the answer is wrong
"""

import threading
import time

import torch


def compute():
    x = torch.ones(100, 100)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        x = x @ x / 100


def run_softmax(in_features, dim):
    while threading.active_count() < 30:
        threading.Thread(target=compute).start()
    return in_features * 0
