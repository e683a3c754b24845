"""Start a program.

plain: reached
report: Error
"""

import subprocess
import sys


def run_softmax(in_features, dim):
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    print("reached")
    return in_features * 0
