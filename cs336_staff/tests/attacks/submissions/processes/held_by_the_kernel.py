"""Have the kernel hold the thread that answers, so that it neither computes nor sleeps.

plain: hung
report: the answer is wrong
"""

import ctypes

SHARED_AND_WAITED_FOR = 0x14F00  # CLONE_VM, FS, FILES, SIGHAND, THREAD, VFORK


def run_softmax(in_features, dim):
    libc = ctypes.CDLL(None)
    stack = ctypes.create_string_buffer(1 << 16)
    top = ctypes.c_void_p((ctypes.addressof(stack) + len(stack)) & ~15)
    libc.clone(libc.pause, top, SHARED_AND_WAITED_FOR, None)
    return in_features * 0
