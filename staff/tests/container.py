"""Run a command as the container of a course's platform does: as root, with Docker's capabilities and system calls.

A seccomp filter refuses new namespaces inside, as Docker's does, so the sandbox cannot be bubblewrap. It refuses
Landlock as well, which older kernels lack: what holds without it holds with it. Outside it takes bubblewrap, and root.
"""

import ctypes
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from errno import ENOSYS, EPERM
from pathlib import Path
from subprocess import CompletedProcess, run
from uuid import uuid4

from whichline_grader.sandbox.inside.lock_in import ACT_ALLOW, ACT_ERRNO, LANDLOCK_CREATE, MASKED_EQUAL, Argument

CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW"),
    *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT", "AUDIT_WRITE"),
)
NEW_NAMESPACE = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)


def docker_filter() -> int:
    """A file with the BPF program that refuses namespaces, mounts and Landlock."""
    lib = ctypes.CDLL("libseccomp.so.2")
    lib.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(lib.seccomp_init(ACT_ALLOW))

    def refuse(number: int, error: int, *arguments: Argument) -> None:
        array = (Argument * len(arguments))(*arguments)
        assert lib.seccomp_rule_add_array(context, ACT_ERRNO | error, number, len(arguments), array) == 0

    def number(name: str) -> int:
        return lib.seccomp_syscall_resolve_name(name.encode())

    for name in ("mount", "pivot_root", "setns", "umount2", "unshare"):
        refuse(number(name), EPERM)
    for flag in NEW_NAMESPACE:
        refuse(number("clone"), EPERM, Argument(0, MASKED_EQUAL, flag, flag))
    refuse(number("clone3"), ENOSYS)
    refuse(LANDLOCK_CREATE, ENOSYS)
    program = os.memfd_create("filter")
    assert lib.seccomp_export_bpf(context, program) == 0
    os.lseek(program, 0, os.SEEK_SET)
    return program


def run_in_container(command: Sequence[str], binds: Sequence[str | Path], memory_bytes: int) -> CompletedProcess[str]:
    """Run a command; `binds` are further arguments of bubblewrap, and memory is capped where the kernel can do so."""
    program = docker_filter()
    bubblewrap = ["bwrap", "--die-with-parent", "--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc"]
    # An interpreter in a home folder is out of reach for other users, and a container's is not.
    home, interpreter = Path.home(), Path(sys.base_prefix)
    bubblewrap += ["--perms", "0755", "--tmpfs", str(home)]
    if interpreter.is_relative_to(home):
        for folder in reversed(interpreter.relative_to(home).parents[:-1]):
            bubblewrap += ["--perms", "0755", "--dir", str(home / folder)]
        bubblewrap += ["--ro-bind", str(interpreter), str(interpreter)]
    bubblewrap += ["--tmpfs", "/tmp", *map(str, binds), "--cap-drop", "ALL"]  # noqa: S108 (its own)
    for name in CAPABILITIES:
        bubblewrap += ["--cap-add", f"CAP_{name}"]
    bubblewrap += ["--seccomp", str(program), *command]
    cgroup = _capped(memory_bytes)
    enter = f"echo $$ > {cgroup}/cgroup.procs && " if cgroup else ""
    try:
        shell = ["/bin/sh", "-c", f'{enter}exec "$@"', "sh", *bubblewrap]
        return run(shell, pass_fds=[program], capture_output=True, text=True, check=False, timeout=300)
    finally:
        os.close(program)
        if cgroup:
            with suppress(OSError):
                cgroup.rmdir()


def _capped(memory_bytes: int) -> Path | None:
    """A control group below the one that this process is in; None where the kernel has the second version of them."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            cgroup = Path(f"/sys/fs/cgroup/memory{path}", f"cs336-{uuid4().hex}")
            cgroup.mkdir()
            (cgroup / "memory.limit_in_bytes").write_text(str(memory_bytes))
            return cgroup
    return None
