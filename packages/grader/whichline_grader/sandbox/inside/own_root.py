"""Give this process its own read-only files and its own user. Linux only.

Reading a file changes its access time, which other processes can see. If a process can write nothing, not even that,
and sees nothing that others write, it cannot pass anything on by files.
"""

import ctypes
import os
import sys

from whichline_grader.sandbox.inside.lock_in import CLONE_NEWNS, CLONE_NEWUSER, MS_NOSUID, PR_SET_DUMPABLE, check, libc

MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 0x1000, 0x2000, 0x4000, 0x40000
MOUNT_SETATTR = 442  # on every processor
NOBODY = 65534
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
MOUNT_ATTR_RDONLY = 0x1


def lock_in_zygote(readable: list[str], hidden: list[str], packages: list[str], worker: str, place: str) -> list[str]:
    """Confine this process, which has no threads yet; return the parts that work: `mounts` and `uid`.

    The `readable` files, `worker` and `/proc` stay visible, read-only; the `hidden` ones among them look empty. If
    `readable` is empty, or the kernel allows no namespace, all files stay visible. The new root is built in `place`.
    """
    visible = sorted((*readable, worker, "/proc"))  # a folder comes before its contents
    layers = []
    if readable and _unshare(CLONE_NEWNS) and _change_root(visible, hidden, place):  # needs root
        layers.append("mounts")
    if os.getuid() == 0:
        _become_nobody(packages)
        layers.append("uid")
    if readable and "mounts" not in layers and _unshare(CLONE_NEWNS | CLONE_NEWUSER):
        layers += ["mounts"] * _change_root(visible, hidden, place)
    return layers


def _unshare(namespaces: int) -> bool:
    user, group = os.getuid(), os.getgid()
    try:
        check(libc.unshare(namespaces), "unshare")
        ids = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
        for file, text in ids.items() if namespaces & CLONE_NEWUSER else ():
            with open(f"/proc/self/{file}", "w") as opened:
                opened.write(text)
    except OSError:
        return False
    return True


def _become_nobody(packages: list[str]) -> None:
    """Drop root's user and groups, and with them all capabilities."""
    try:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    except OSError as error:
        raise OSError(f"root cannot become nobody here ({error}); grade as another user") from None
    libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # for now: a process that is not dumpable cannot write its uid_map
    for path in (sys.base_prefix, *packages):
        if not os.access(path, os.R_OK | os.X_OK):
            raise OSError(f"submissions run as nobody, who cannot read {path}; make it readable, or do not run as root")


def _change_root(visible: list[str], hidden: list[str], place: str) -> bool:
    """Make `visible` all that this process sees; False, with nothing changed, if the kernel does not allow it."""
    try:
        _mount(None, "/", MS_REC | MS_PRIVATE)  # nothing of this shows outside
        _mount("tmpfs", place, MS_NOSUID)
        os.umask(0o022)
        for path in visible:
            _show(path, place + path)
        for path in hidden:
            _mount("tmpfs", place + path, MS_NOSUID)
        read_only = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY)
        attributes = place.encode(), AT_RECURSIVE, read_only, ctypes.sizeof(read_only)
        check(libc.syscall(MOUNT_SETATTR, AT_FDCWD, *attributes), "mount_setattr")
        # After chroot alone, the kernel would refuse namespaces to the workers.
        os.chdir(place)
        _mount(".", "/", MS_MOVE)
        os.chroot(".")
    except OSError:
        return False
    return True


def _show(path: str, there: str) -> None:
    if os.path.lexists(there):  # inside a folder that is shown already
        return
    os.makedirs(os.path.dirname(there), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), there)
        return
    if os.path.isdir(path):
        os.mkdir(there)
    else:
        os.close(os.open(there, os.O_CREAT))
    _mount(path, there, MS_BIND | MS_REC)


def _mount(source: str | None, target: str, flags: int) -> None:
    kind = b"tmpfs" if source == "tmpfs" else None
    check(libc.mount(source and source.encode(), target.encode(), kind, flags, None), "mount")
