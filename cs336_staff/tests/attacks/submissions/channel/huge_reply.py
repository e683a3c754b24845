"""Announce a reply of 10 GiB, for the other side to make room for.

plain: refused
report: a reply with more bytes
"""

import os
import struct
from contextlib import suppress


def run_softmax(in_features, dim):
    with suppress(OSError):
        os.write(3, struct.pack("<IQ", 2, 10 << 30) + b"{}")
    return in_features * 0
