"""Send signals to the process that started this one; SIGURG, which does nothing, stands for SIGKILL.

plain: reached
report: PermissionError
"""

import os
import signal


def run_softmax(in_features, dim):
    os.kill(os.getppid(), signal.SIGURG)
    print("reached")
    return in_features * 0
