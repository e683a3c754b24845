"""Give up for good whatever student code must not have. Linux only.

The layers are independent: namespaces, in which a process sees its own id only and an empty `/proc`; no capabilities,
and hard resource limits; Landlock, which makes all but some folders unreadable and everything unwritable; a seccomp
filter, which allows only the system calls of a program that computes and prints.
"""

import ctypes
import itertools
import os
import resource
import signal
from contextlib import suppress
from errno import ENOSYS, EPERM

libc = ctypes.CDLL(None, use_errno=True)

# Address space beyond what is mapped now. Its page tables, at most 32 MiB, are kernel memory that no limit counts.
ADDRESSES = 16 << 30
ALL, DATA = 0, 5  # fields of /proc/self/statm
M_MMAP_THRESHOLD = -3
MADV_COLLAPSE = 25  # since Linux 6.1
FEW = 8  # forks: for so few, joining pages takes longer than it saves
forks = itertools.count()
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME, PR_SET_NO_NEW_PRIVS = 1, 4, 15, 38
CLONE3 = 435  # on every processor
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x20000, 0x10000000, 0x20000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8


def hide_memory() -> None:
    """Keep unprivileged processes from ptracing this one and from reading its `/proc/<pid>/mem`, environ and fd."""
    _prctl(PR_SET_DUMPABLE, 0)


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def give_back_memory() -> None:
    """Map each large tensor by itself from now on: memory that malloc kept would count as the submission's.

    Blocks of 160 × 160 are not large: mapping one would take longer than computing it.
    """
    libc.mallopt(M_MMAP_THRESHOLD, 1 << 17)


def prepare_fork() -> None:
    """Join pages before a fork, once there have been a few forks."""
    if next(forks) == FEW:
        join_pages()


def join_pages() -> None:
    """Move this process's memory to large pages, if the kernel has them, since a fork copies the list of pages.

    With torch a fork then takes 5 ms instead of 25; joining takes some tenths of a second.
    """
    with suppress(OSError), open("/proc/self/maps") as maps:
        for place, rights, _, _, inode, *_ in map(str.split, maps.readlines()):
            if rights == "rw-p" and inode == "0":
                start, end = (int(address, 16) for address in place.split("-"))
                libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), MADV_COLLAPSE)


class _Clone(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack", "stack_size", "tls")
    )


def fork_in_namespaces() -> tuple[int, bool]:
    """Fork into new namespaces for users, mounts and process ids; if that is forbidden, fork as `os.fork` does.

    It tells whether the child has the namespaces. No capability is needed.
    """
    arguments = _Clone(flags=CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS, exit_signal=signal.SIGCHLD)
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = ctypes.PyDLL(None).syscall(CLONE3, ctypes.byref(arguments), ctypes.sizeof(arguments))
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return (os.fork(), False) if pid < 0 else (pid, True)


def lock_in(
    readable: list[str], cpu_seconds: int, data_bytes: int, has_namespaces: bool, seccomp: "Filter | None"
) -> list[str]:
    """Confine the calling process; return the parts that work.

    Without `readable` files, Landlock is not used; without a filter the process has limits only (`--sandbox none`).
    `data_bytes` of private memory may be mapped beyond what is mapped now.
    """
    end_with_parent()
    hide_memory()
    for limit, value in {
        resource.RLIMIT_CPU: cpu_seconds,
        resource.RLIMIT_DATA: _measure_mapped(DATA) + data_bytes,
        resource.RLIMIT_AS: _measure_mapped(ALL) + ADDRESSES,
        resource.RLIMIT_NOFILE: 64,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_MEMLOCK: 0,
    }.items():
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))
    if seccomp is None:
        return []
    # `/proc` would reveal, among other things, the id of this process outside.
    flags = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC
    ids = has_namespaces and libc.mount(b"tmpfs", b"/proc", b"tmpfs", flags, b"size=4k") == 0
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    check(libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")  # drops all
    return [*["ids"] * ids, *confine(readable, seccomp)]


def confine(readable: list[str], seccomp: "Filter") -> list[str]:
    """Allow this process to read only these files and folders, if any, and to make only the filter's system calls."""
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    landlock = bool(readable) and _restrict_files(readable)
    seccomp.load()
    return [*["landlock"] * landlock, "seccomp"]


def _prctl(option: int, value: int) -> None:
    check(libc.prctl(option, value, 0, 0, 0), "prctl")


def check(result: int, what: str) -> int:
    """Return what the C library gave; OSError if it says that it failed."""
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return result


def _measure_mapped(field: int) -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[field]) * resource.getpagesize()


# Landlock: https://docs.kernel.org/userspace-api/landlock.html

LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
READ_FILE, READ_DIR = 1 << 2, 1 << 3
FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def _restrict_files(readable: list[str]) -> bool:
    """Allow reading below `readable`, and nothing else that Landlock controls; False if the kernel has no Landlock."""
    version = libc.syscall(LANDLOCK_CREATE, None, 0, 1)
    if version < 1:
        return False
    network = 0b11 if version >= 4 else 0  # bind and connect TCP
    scoped = 0b11 if version >= 6 else 0  # abstract sockets and signals
    rules = _Ruleset(FILE_RIGHTS[min(version, 5)], network, scoped)
    ruleset = check(libc.syscall(LANDLOCK_CREATE, ctypes.byref(rules), ctypes.sizeof(rules), 0), "landlock")
    for path in readable:
        parent = os.open(path, os.O_PATH)
        rule = _PathBeneath(READ_FILE | READ_DIR if os.path.isdir(path) else READ_FILE, parent)
        check(libc.syscall(LANDLOCK_ADD, ruleset, 1, ctypes.byref(rule), 0), "landlock")
        os.close(parent)
    check(libc.syscall(LANDLOCK_RESTRICT, ruleset, 0), "landlock")
    os.close(ruleset)
    return True


# seccomp, through libseccomp. Any other system call fails with EPERM.
# Nothing here reveals the state of the machine, and so of earlier submissions: load and free memory (sysinfo), free
# space (statfs), what was in memory already (getrusage, mincore).

ALLOWED = """
    read readv pread64 write writev lseek close dup dup2 dup3 poll ppoll select pselect6
    stat fstat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat getdents64 getcwd chdir
    brk munmap mprotect mremap madvise membarrier
    exit exit_group futex set_robust_list set_tid_address rseq restart_syscall sched_yield sched_getaffinity
    rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack pause
    nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time times
    setitimer getitimer alarm
    getpid gettid getppid getuid geteuid getgid getegid uname getrlimit getcpu getrandom arch_prctl
""".split()  # noqa: SIM905  (a list would be a page long)

CLONE_VFORK, CLONE_THREAD = 0x4000, 0x10000
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
MAP_SHARED, MAP_GROWSDOWN = 0x1, 0x100
F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC = 0, 1, 2, 3, 4, 1030
TCGETS, FIONREAD, FIONBIO, FIOCLEX = 0x5401, 0x541B, 0x5421, 0x5451

ACT_ALLOW, ACT_ERRNO = 0x7FFF0000, 0x00050000
EQUAL, MASKED_EQUAL = 4, 7


class Argument(ctypes.Structure):
    """A comparison of one argument of a system call, as libseccomp has it."""

    _fields_ = (("number", ctypes.c_uint), ("comparison", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


class Filter:
    """The system calls that a locked-in process may make; OSError if libseccomp is not installed."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL("libseccomp.so.2")
        self.lib.seccomp_init.restype = ctypes.c_void_p
        self.context = ctypes.c_void_p(self.lib.seccomp_init(ACT_ERRNO | EPERM))
        for name in ALLOWED:
            self._add_rule(name)
        # Threads only: no processes, and no vfork, whose parent waits in the kernel and seems neither to compute nor to
        # sleep. clone3, whose flags a filter cannot see, seems to be missing, so glibc falls back on clone.
        self._add_rule("clone", Argument(0, MASKED_EQUAL, CLONE_THREAD | CLONE_VFORK, CLONE_THREAD))
        self._add_rule("clone3", action=ACT_ERRNO | ENOSYS)
        self._add_rule("open", Argument(1, MASKED_EQUAL, WRITING, 0))
        self._add_rule("openat", Argument(2, MASKED_EQUAL, WRITING, 0))
        # RLIMIT_DATA counts neither kind of mapping, and unmapped shared memory is resident for no process.
        self._add_rule("mmap", Argument(3, MASKED_EQUAL, MAP_SHARED | MAP_GROWSDOWN, 0))
        self._add_rule("prctl", Argument(0, EQUAL, PR_SET_NAME, 0))
        self._add_rule("prlimit64", Argument(0, EQUAL, 0, 0))
        # F_SETOWN and F_SETSIG would send signals to other processes.
        for command in (F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC):
            self._add_rule("fcntl", Argument(1, EQUAL, command, 0))
        for request in (TCGETS, FIONREAD, FIONBIO, FIOCLEX):
            self._add_rule("ioctl", Argument(1, EQUAL, request, 0))

    def load(self) -> None:
        self._check(self.lib.seccomp_load(self.context), "seccomp_load")

    def _add_rule(self, syscall: str, *arguments: Argument, action: int = ACT_ALLOW) -> None:
        number = self.lib.seccomp_syscall_resolve_name(syscall.encode())
        if number < 0:  # unknown to this libseccomp or machine, so it stays forbidden
            return
        array = (Argument * len(arguments))(*arguments)
        self._check(self.lib.seccomp_rule_add_array(self.context, action, number, len(arguments), array), syscall)

    @staticmethod
    def _check(result: int, what: str) -> None:
        if result < 0:
            raise OSError(-result, f"seccomp: {what}: {os.strerror(-result)}")
