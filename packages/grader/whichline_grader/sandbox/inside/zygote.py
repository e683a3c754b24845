"""The zygote: a process that has imported what submissions may import, and forks their workers.

It never reads a byte that student code wrote. `sandbox/confinement.py` runs `main(controls, settings)`.
"""

import faulthandler
import gc
import importlib
import io
import json
import os
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import torch

from whichline.rules.forbidden import load_forbidden
from whichline.rules.settings import take_compilers_away
from whichline.rules.watch import Watch
from whichline_grader.sandbox.inside import frames, lock_in
from whichline_grader.sandbox.inside.importing import is_submitted
from whichline_grader.sandbox.inside.serve import Diagnose, send, serve

ALWAYS = ("einops", "jaxtyping", "numpy", "numpy.random")
CHANNEL = 3


def main(controls: list[int], settings: dict[str, Any]) -> NoReturn:
    """Fork a worker for each message on a control socket, and exit when its other end closes.

    A message is `{"cpu_seconds": ..., "data_bytes": ..., "modules": [...]}`, the limits and the modules to import
    first, with three file descriptors: the worker's channel, its stdout and its stderr.
    A second socket is for a fork of this process, whose workers find the mistakes of a submission. The
    settings are those of `_command_zygote`.
    """
    if settings["confined"]:
        lock_in.hide_memory()
    seccomp = lock_in.Filter() if settings["confined"] else None
    lock_in.give_back_memory()
    watch = Watch(load_forbidden(Path(settings["worker"], "assignment.toml")), is_submitted, whole_call=True)
    watch.install()
    for name in [name for name in sys.modules if name.partition(".")[0] == "whichline"]:
        del sys.modules[name]
    warm_up(settings["imported"])
    is_diagnosis = len(controls) == 2 and os.fork() == 0
    connection = socket.socket(fileno=controls.pop(is_diagnosis))
    for other in controls:
        os.close(other)
    diagnose = None
    if is_diagnosis:
        from whichline_grader.sandbox.inside.diagnosis import prepare

        diagnose = prepare(settings["worker"])
        gc.freeze()
    else:
        sys.meta_path.insert(0, EngineBlocker)
    gc.enable()  # it was off during the imports, which leave no garbage
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the dead
    sys.path.remove(settings["worker"])
    about = {"torch": torch.__version__, "cpu_capability": torch.backends.cpu.get_cpu_capability()}
    connection.send(json.dumps(about).encode())
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, 4096, 3)
        if not message:
            os._exit(0)  # torch is slow to unload
        lock_in.prepare_fork()
        wanted = json.loads(message)
        if not sys.modules.keys() >= set(wanted["modules"]):
            _import(wanted["modules"])
        pid, namespaced = lock_in.fork_in_namespaces() if settings["confined"] else (os.fork(), False)
        if pid == 0:
            _become_worker(wanted, descriptors, settings, namespaced, seccomp, watch, diagnose)
        for descriptor in descriptors:
            os.close(descriptor)


class EngineBlocker:
    """Makes the engine missing, even if it is installed and readable."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name.partition(".")[0] == "whichline":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def warm_up(packages: Iterable[str]) -> None:
    """Import and run whatever would be slow in each worker. With one thread: others do not survive a fork."""
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    tempfile.tempdir = "/"  # otherwise tempfile searches for a writable folder
    take_compilers_away()
    x = torch.ones(2, 2, requires_grad=True)
    torch.einsum("ij,jk->ik", x, x).exp().amax().backward()
    (x * x).backward(torch.ones(torch.broadcast_shapes((2, 1), (1, 2))))  # either one imports sympy
    _import((*ALWAYS, *packages))


def _import(modules: Iterable[str]) -> None:
    for module in modules:
        with suppress(ImportError):
            importlib.import_module(module)
    gc.freeze()


def _become_worker(
    wanted: dict[str, Any],
    descriptors: list[int],
    settings: dict[str, Any],
    namespaced: bool,
    seccomp: lock_in.Filter | None,
    watch: Watch,
    diagnose: Diagnose | None,
) -> None:
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()  # so that, with autogroup, thirty threads get no more of the processor than one
        for number, descriptor in zip((CHANNEL, 1, 2), descriptors, strict=True):
            os.dup2(descriptor, number)
        os.closerange(CHANNEL + 1, os.sysconf("SC_OPEN_MAX"))
        sys.stdout, sys.stderr = (
            io.TextIOWrapper(os.fdopen(number, "wb", buffering=0), errors="backslashreplace", write_through=True)
            for number in (1, 2)
        )
        faulthandler.enable(2, all_threads=False)  # reports a segmentation fault on stderr
        with socket.socket(fileno=os.dup(CHANNEL)) as channel:
            pidfd = os.pidfd_open(os.getpid())
            socket.send_fds(channel, [b"."], [pidfd])
            os.close(pidfd)
        layers = lock_in.lock_in(settings["readable"], wanted["cpu_seconds"], wanted["data_bytes"], namespaced, seccomp)
        send(CHANNEL, frames.pack({"layers": [*settings["layers"], *layers]}))
        serve(CHANNEL, watch, diagnose)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)
