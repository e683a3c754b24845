"""Stop the process: it neither answers nor ends.

plain: hung
report: PermissionError
"""

import os
import signal


def run_softmax(in_features, dim):
    os.kill(os.getpid(), signal.SIGSTOP)
    return in_features * 0
