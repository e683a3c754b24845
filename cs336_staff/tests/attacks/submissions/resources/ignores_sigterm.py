"""Ignore every signal that can be ignored, and sleep.

plain: hung
report: no answer within
"""

import signal
import time

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM, signal.SIGXCPU):
    signal.signal(number, signal.SIG_IGN)


def run_softmax(in_features, dim):
    time.sleep(60)
