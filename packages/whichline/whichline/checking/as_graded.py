"""Refuse the student's code what grading refuses: files, the network and other processes.

It raises the same errors as the sandbox, so code that handles them in grading handles them here. It refuses nothing
that the sandbox allows, and does not see what a library does in C, such as `torch.save`.
"""

import errno
import os
import re
import sys
import sysconfig
import tempfile
from pathlib import Path
from traceback import walk_stack
from typing import Any

from whichline.engine.assignment import student_files

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# What the sandbox refuses, as https://docs.python.org/3/library/audit_events.html names it. The first argument of each
# of these events is a file.
FILES = {
    *("open", "os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink"),
    *("os.truncate", "os.utime"),
}
OTHERS = {
    *("os.exec", "os.fork", "os.forkpty", "os.kill", "os.posix_spawn", "os.spawn", "os.startfile", "subprocess.Popen"),
    *("socket.__new__", "socket.getaddrinfo", "socket.gethostbyname"),
}
# A package may do something by itself, such as write a cache of fonts: the student did not ask for it. The packages in
# OBEDIENT do only what they are asked to do.
PACKAGE = re.compile(r"[\\/](?:site|dist)-packages[\\/](\w+)")
OBEDIENT = ("numpy", "requests", "tiktoken", "torch", "urllib3")
SYSTEM = ("/dev/", "/usr/")  # without files of the student's


def refuse_as_in_grading(root: Path) -> None:
    """From now on, in this process, refuse the student's code in this folder what grading refuses."""
    tempfile.gettempdir()  # Python finds it by writing to it
    own = tuple(str(root / name) for name in student_files())
    python = {sys.prefix, sys.base_prefix, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    readable = (*own, *python, *map(os.path.realpath, python), *SYSTEM)

    def refuse(event: str, args: tuple[Any, ...]) -> None:
        if event not in FILES and event not in OTHERS:
            return
        path = args[0] if event in FILES else ""
        reads = event == "open" and not args[2] & WRITING
        if event == "open" and isinstance(path, int):  # a descriptor
            return
        if reads and os.path.abspath(os.fsdecode(path)).startswith(readable):
            return
        if _is_asked_by(own):
            number = errno.ENOENT if reads else errno.EPERM
            raise OSError(number, os.strerror(number), *filter(None, [path]))

    sys.addaudithook(refuse)


def _is_asked_by(files: tuple[str, ...]) -> bool:
    """Tell whether a line of these files causes the current event, not through an import or a package by itself."""
    for frame, _ in walk_stack(sys._getframe(2)):
        file = frame.f_code.co_filename
        if file.startswith(files):
            return True
        package = PACKAGE.search(file)
        if file.startswith("<frozen importlib") or (package and package[1] not in OBEDIENT):
            return False
    return False
