"""Run machine code of its own, as a compiled extension would: exit_group(0).

plain: forged
report: the process ended or closed its channel
machine: x86_64
"""

import ctypes
import mmap

CODE = b"\x31\xff\xb8\xe7\x00\x00\x00\x0f\x05"  # xor edi, edi; mov eax, 231; syscall


def run_softmax(in_features, dim):
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, 4096, private, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(CODE)
    ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))()
