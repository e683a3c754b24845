"""Compute in thirty threads, to slow the submission beside it.

plain: refused
report: the answer is wrong
"""

import threading
import time

import torch


def compute(begin):
    begin.wait()
    x = torch.ones(100, 100)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        x = x @ x / 100


def run_softmax(in_features, dim):
    if threading.active_count() == 1:
        begin = threading.Event()
        for _ in range(29):
            threading.Thread(target=compute, args=(begin,)).start()
        begin.set()
    return in_features * 0
