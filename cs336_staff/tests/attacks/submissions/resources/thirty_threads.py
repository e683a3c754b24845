"""Compute in thirty threads, to slow the submission beside it.

plain: reached
report: the answer is wrong
"""

import threading

import torch


def compute():
    x = torch.ones(100, 100)
    while True:
        x = x @ x / 100


def run_softmax(in_features, dim):
    while threading.active_count() < 30:
        threading.Thread(target=compute, daemon=True).start()
    print("reached")
    return in_features * 0
