"""Start the zygote, from which workers are forked, in the strongest sandbox that works here. Linux only.

`bubblewrap`: namespaces of its own. It sees the interpreter, the packages and the system's libraries, and nothing else;
nothing is writable, and there is no network. Inside, each worker locks itself in (`inside/lock_in.py`).
`process`: for machines without bubblewrap and containers that forbid namespaces. Workers lock themselves in, with
Landlock, and if namespaces work they see no other files (`inside/own_root.py`).
`none`: only limits on time and memory.
If root grades, workers of the first two run as `nobody`.

This module imports torch while the zygote does, so that both import it at the same time.
"""

import importlib.util
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from whichline.engine.assignment import get_assignment, get_root
from whichline.engine.errors import CourseworkError
from whichline_grader.paths import ENGINE, GRADER
from whichline_grader.sandbox import zygote_files
from whichline_grader.sandbox.inside.lock_in import hide_memory
from whichline_grader.sandbox.submission import SLOW_IMPORTS

Layer = Literal["bubblewrap", "process", "none"]

START_SECONDS = 120
FORK_SECONDS = 30
ACCESS_TIMES = (
    "no user namespaces here: a later submission can read which files an earlier one opened, and so a hidden input "
    "that two authors pass on; see security.md"
)


class SandboxError(CourseworkError):
    """The sandbox does not work here or has stopped working: never the submission's fault."""


@dataclass(frozen=True)
class SandboxReport:
    """The protection between a submission and this machine."""

    layer: Layer
    parts: tuple[str, ...]  # what works of "namespaces", "mounts", "uid", "ids", "landlock" and "seccomp"
    notes: tuple[str, ...] = ()  # why no stronger layer was used, and what this one leaves open

    def __str__(self) -> str:
        return "+".join((self.layer, *self.parts))

    @property
    def leaves_marks(self) -> bool:
        """Tell whether a later submission can see by access times which files an earlier one opened."""
        return self.layer == "process" and "mounts" not in self.parts


@dataclass(frozen=True)
class Process:
    """A confined worker that has not seen its submission yet. All descriptors are non-blocking."""

    channel: socket.socket
    stdout: int
    stderr: int
    pidfd: int
    pid: int
    stat: int

    def read_stat(self) -> list[bytes]:
        """The fields of `/proc/PID/stat` after the name, which may hold anything; ProcessLookupError if it ended."""
        return os.pread(self.stat, 4096, 0).rpartition(b")")[2].split()

    def end(self) -> None:
        """Kill it; what it has written can still be read."""
        with suppress(ProcessLookupError):  # it has ended already
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def kill(self) -> None:
        """Kill it, wait until it has ended, and close its descriptors."""
        self.end()
        select.select([self.pidfd], [], [], FORK_SECONDS)
        self.channel.close()
        for descriptor in (self.stdout, self.stderr, self.pidfd, self.stat):
            os.close(descriptor)


class Sandbox(AbstractContextManager["Sandbox"]):
    """A running zygote, which any number of forks of this process may use at the same time.

    The workers of its `diagnosis`, a second zygote, know the references and find mistakes; they earn no points.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], control: socket.socket, layer: Layer, diagnosis: "Sandbox | None" = None
    ) -> None:
        self._process, self._control, self.diagnosis = process, control, diagnosis
        probe, self._layers = self._fork(cpu_seconds=10, data_bytes=1 << 30)
        probe.kill()
        self.achieved = SandboxReport(layer, tuple(self._layers))

    def fork(self, cpu_seconds: int, data_bytes: int, modules: Sequence[str] = ()) -> Process:
        """Fork a fresh worker, which the kernel kills after this processor time and gives so much private memory.

        The zygote imports `modules` before, for this worker and all later ones. SandboxError if the zygote is gone, or
        the worker is less confined than the first one was.
        """
        process, layers = self._fork(cpu_seconds, data_bytes, modules)
        if layers != self._layers:
            process.kill()
            raise SandboxError(f"expected a worker confined by {self._layers}, got {layers}; start the sandbox again")
        return process

    def check(self) -> None:
        """Raise SandboxError unless the sandbox still gives workers."""
        self.fork(cpu_seconds=10, data_bytes=1 << 30).kill()
        if self.diagnosis:
            self.diagnosis.check()

    def restart(self) -> None:
        """Replace a zygote that has ended; SandboxError if the new one confines less, or does not start."""
        self._process.kill()
        self.close()
        fresh = finish(_spawn(self.achieved.layer, self.diagnosis is not None))
        self._process, self._control, self.diagnosis = fresh._process, fresh._control, fresh.diagnosis
        if fresh._layers != self._layers:
            raise SandboxError(f"expected workers confined by {self._layers}, got {fresh._layers}")

    def close(self) -> None:
        """End the zygote, its second one, and all their workers."""
        for each in filter(None, (self.diagnosis, self)):
            with suppress(OSError):  # closed already
                each._control.shutdown(socket.SHUT_RDWR)
            each._control.close()
        self._process.wait()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fork(self, cpu_seconds: int, data_bytes: int, modules: Sequence[str] = ()) -> tuple[Process, list[str]]:
        from whichline_grader.sandbox.inside import frames

        channel, their_channel = socket.socketpair()
        stdout, their_stdout = os.pipe()
        stderr, their_stderr = os.pipe()
        os.set_blocking(stdout, False)
        os.set_blocking(stderr, False)
        wanted = json.dumps({"cpu_seconds": cpu_seconds, "data_bytes": data_bytes, "modules": modules}).encode()
        try:
            try:
                socket.send_fds(self._control, [wanted], [their_channel.fileno(), their_stdout, their_stderr])
            finally:
                their_channel.close()
                os.close(their_stdout)
                os.close(their_stderr)
            channel.settimeout(FORK_SECONDS)
            pidfd = socket.recv_fds(channel, 1, 1)[1][0]
            with channel.makefile("rb") as sent:
                if not (prefix := sent.read(frames.PREFIX.size)):
                    raise ConnectionError("the worker ended while it confined itself")
                header_bytes, _ = frames.PREFIX.unpack(prefix)
                layers = frames.parse_header(sent.read(header_bytes))["layers"]
        except (OSError, IndexError) as error:
            with suppress(BlockingIOError):
                error = os.read(stderr, 1 << 16).decode(errors="replace").strip().rpartition("\n")[2] or error
            channel.close()
            os.close(stdout)
            os.close(stderr)
            raise SandboxError(f"the sandbox gives no worker ({error}); start it again") from None
        channel.setblocking(False)
        with open(f"/proc/self/fdinfo/{pidfd}") as info:
            pid = next(int(line.split()[1]) for line in info if line.startswith("Pid:"))
        return Process(channel, stdout, stderr, pidfd, pid, os.open(f"/proc/{pid}/stat", os.O_RDONLY)), layers


Starting = Generator[None, None, Sandbox]


def start(layer: Layer | Literal["auto"] = "auto", diagnosing: bool = False) -> Sandbox:
    """Start `layer`, or the strongest one that works, and for `diagnosing` a second zygote with what students have.

    This takes a few seconds, since it imports torch. SandboxError if `layer` does not work here, with what to install;
    `auto` never goes below `process`.
    """
    return finish(begin(layer, diagnosing))


def finish(starting: Starting) -> Sandbox:
    while True:
        try:
            next(starting)
        except StopIteration as end:
            return end.value


def begin(layer: Layer | Literal["auto"] = "auto", diagnosing: bool = False) -> Starting:
    """Start a sandbox as `start` does, and yield once its process is running.

    Except with `none`, the calling process becomes non-dumpable, so that no worker can read its memory.
    """
    _compile_packages()
    if layer == "none":
        return (yield from _spawn("none", diagnosing))
    hide_memory()
    if layer == "bubblewrap":
        return (yield from _start_bubblewrap(diagnosing))
    if layer == "process":
        return (yield from _start_locked_in(diagnosing))
    try:
        return (yield from _start_bubblewrap(diagnosing))
    except SandboxError as bubblewrap:
        try:
            sandbox = yield from _start_locked_in(diagnosing)
        except SandboxError as process:
            raise SandboxError(f"no sandbox works here:\n- bubblewrap: {bubblewrap}\n- process: {process}") from None
        notes = (f"no bubblewrap: {bubblewrap}", *sandbox.achieved.notes)
        sandbox.achieved = SandboxReport("process", sandbox.achieved.parts, notes)
        return sandbox


def _start_bubblewrap(diagnosing: bool) -> Starting:
    if shutil.which("bwrap") is None:
        raise SandboxError("bwrap is not installed; install the package bubblewrap (apt-get install bubblewrap)")
    sandbox = yield from _spawn("bubblewrap", diagnosing)
    if "seccomp" not in sandbox.achieved.parts:
        sandbox.close()
        raise SandboxError("expected a seccomp filter inside bubblewrap")
    return sandbox


def _start_locked_in(diagnosing: bool) -> Starting:
    sandbox = yield from _spawn("process", diagnosing)
    parts = sandbox.achieved.parts
    if not {"mounts", "landlock"} & set(parts) and ("uid" not in parts or _can_others_read(get_root())):
        sandbox.close()
        reason = f"others can read {get_root()}; chmod 700 a folder above it" if "uid" in parts else "you are not root"
        raise SandboxError(f"expected Linux 5.13 with Landlock, or root; this kernel has no Landlock, and {reason}")
    if sandbox.achieved.leaves_marks:
        sandbox.achieved = SandboxReport("process", parts, (ACCESS_TIMES,))
    return sandbox


def _compile_packages() -> None:
    """Compile packages once for an environment: a zygote cannot write, and would compile them at each start."""
    torch = importlib.util.find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    one = Path(torch.origin).with_name("_dynamo") / "__init__.py"
    compiled = Path(importlib.util.cache_from_source(str(one)))
    if not compiled.exists() and os.access(one.parent, os.W_OK):
        environment = {**os.environ, **zygote_files.ENVIRONMENT, "PYTHONDONTWRITEBYTECODE": ""}
        warm_up = f"from whichline_grader.sandbox.inside.zygote import warm_up; warm_up({get_assignment().packages})"
        subprocess.run([sys.executable, "-c", warm_up], env=environment, capture_output=True)


def _spawn(layer: Layer, diagnosing: bool) -> Starting:
    with tempfile.TemporaryDirectory(prefix="worker-") as folder, tempfile.TemporaryFile() as stderr:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(1 + diagnosing)]
        controls, theirs = ([pair[side] for pair in pairs] for side in (0, 1))
        passed = [control.fileno() for control in theirs]
        command = _command_zygote(layer, Path(folder), diagnosing, passed)
        none = subprocess.DEVNULL
        try:
            process = subprocess.Popen(
                command, stdin=none, stdout=none, stderr=stderr, env=zygote_files.ENVIRONMENT, cwd="/", pass_fds=passed
            )
        except OSError as error:
            raise SandboxError(str(error)) from None
        for control in theirs:
            control.close()
        yield
        ready = (select.select([control], [], [], START_SECONDS)[0] for control in controls)
        reports = [control.recv(4096) if is_ready else b"" for control, is_ready in zip(controls, ready, strict=True)]
        if not all(reports):
            process.kill()
            process.wait()
            stderr.seek(0)
            last = stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise SandboxError(last or f"the zygote did not start within {START_SECONDS} s")
    import torch

    here = {"torch": torch.__version__, "cpu_capability": torch.backends.cpu.get_cpu_capability()}
    if json.loads(reports[0]) != here:
        process.kill()
        expected = "the same torch and the same vector instructions inside"
        raise SandboxError(f"expected {expected}, {here}; got {reports[0]!r}")
    return Sandbox(process, controls[0], layer, Sandbox(process, controls[1], layer) if diagnosing else None)


def _command_zygote(layer: Layer, folder: Path, diagnosing: bool, controls: list[int]) -> list[str]:
    """Copy the code of a zygote below a folder, and give the command that starts it."""
    packages = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    visible = [*filter(os.path.exists, zygote_files.LIBRARIES), sys.base_prefix, *packages]
    for path in visible if layer != "none" else []:
        if get_root().is_relative_to(path):
            raise SandboxError(f"expected the assignment outside {path}, which submissions can read; move it")
    # Nothing that is installed is secret, but a submission needs none of our packages, so it sees none.
    ours = (Path(package, name) for package in packages for name in (ENGINE.name, GRADER.name))
    hidden = [str(path) for path in ours if path.is_dir()]
    worker, place = folder / "worker", folder / "root"
    zygote_files.copy_worker(worker, diagnosing)
    place.mkdir()
    # Under bubblewrap nothing else exists, and nothing is writable.
    readable = (*visible, *zygote_files.BESIDE_USR, *zygote_files.DEVICES) if layer == "process" else ()
    settings = {
        "worker": str(worker),
        "place": str(place),
        "packages": packages,
        "hidden": hidden,
        "confined": layer != "none",
        "layers": ["namespaces"] * (layer == "bubblewrap"),
        "imported": [each for each in get_assignment().packages if each not in SLOW_IMPORTS],
        "readable": [*filter(os.path.exists, readable)],
    }
    outside = zygote_files.command_bubblewrap([*visible, str(worker)], hidden) if layer == "bubblewrap" else []
    interpreter = [os.path.realpath(sys.executable), "-P", "-s", "-S", "-B", "-X", "utf8", "-c", zygote_files.MAIN]
    return [*outside, *interpreter, json.dumps(controls), json.dumps(settings)]


def _can_others_read(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents)) and bool(path.stat().st_mode & 0o004)
