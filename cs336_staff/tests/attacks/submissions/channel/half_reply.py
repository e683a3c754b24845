"""Write half of a reply and never the other half.

plain: hung
report: no answer within
"""

import os
import struct
import time
from contextlib import suppress


def run_softmax(in_features, dim):
    with suppress(OSError):
        os.write(3, struct.pack("<IQ", 100, 0) + b"{")
    time.sleep(60)
