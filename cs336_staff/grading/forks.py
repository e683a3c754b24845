"""Hold the collected suite, and grade each submission in a fork: in a process that has no threads.

`graders_here` forks it from one that holds the suite already. `python -m cs336_staff.grading.forks CONTROL LAYER` loads
the suite first: `start_host` runs that on the hosts of a cluster.
"""

import gc
import json
import multiprocessing
import os
import pickle
import select
import signal
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial

import torch

from cs336_kit.engine.assignment import AssignmentError, SuiteError
from cs336_staff.grading.host import ROOT, Graders, Host
from cs336_staff.grading.one_submission import Faulty, grade_one
from cs336_staff.grading.ready import ready
from cs336_staff.grading.suite import GradedSuite
from cs336_staff.sandbox.confinement import Sandbox, SandboxError
from cs336_staff.sandbox.limits import Limits


@contextmanager
def graders_here(suite: GradedSuite, sandbox: Sandbox, limits: Limits, jobs: int) -> Iterator[Graders]:
    """Grade `jobs` submissions at a time on this machine."""
    # The process that forks begins before there are threads, and ends before they are waited for.
    with ThreadPoolExecutor(jobs) as executor, _forked_host(suite, sandbox, limits) as host:
        yield Graders(partial(executor.submit, host.grade), lambda: jobs)


def _forked_host(suite: GradedSuite, sandbox: Sandbox, limits: Limits) -> Host:
    """Fork the process that grades from this one, which must not have threads yet; it may have them from then on."""
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def apart() -> None:
        control.close()  # else it would not see that this side has ended
        serve(theirs, suite, sandbox, limits)

    process = multiprocessing.get_context("fork").Process(target=apart)
    process.start()
    theirs.close()
    return Host(control, process.join, layer_of(sandbox))


def serve(control: socket.socket, suite: GradedSuite, sandbox: Sandbox, limits: Limits) -> None:
    """Do what the messages on `control` ask for, until its other end is closed; then kill all forks.

    A message is `grade` or `check`, with a file, which has the submission, and a pipe for the answer.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which closes `control`
    gc.collect()
    gc.freeze()  # a fork that collects garbage copies every page that it looks at
    forks: dict[int, tuple[int, int]] = {}  # by a descriptor of the process: its id, and the pipe that it writes to
    while True:
        for readable in select.select([control.fileno(), *forks], [], [])[0]:
            if readable in forks:
                pid, pipe = forks.pop(readable)
                os.close(readable)
                _write(pipe, f"\n{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}")
                continue
            message, descriptors, _, _ = socket.recv_fds(control, 16, 2)
            if not message:
                for pid, _ in forks.values():
                    os.kill(pid, signal.SIGKILL)
                return
            file, pipe = descriptors
            if message == b"check":
                _write(pipe, f"{_trouble(sandbox)}\n0")
            elif (pid := os.fork()) == 0:
                # Whoever held the pipe of another fork would keep the one who reads it waiting.
                for descriptor in (control.fileno(), *forks, *(other for _, other in forks.values())):
                    os.close(descriptor)
                _grade_and_exit(suite, sandbox, file, limits, pipe)
            else:
                forks[os.pidfd_open(pid)] = pid, pipe
            os.close(file)


def _grade_and_exit(suite: GradedSuite, sandbox: Sandbox, file: int, limits: Limits, pipe: int) -> None:
    """In the fork."""
    try:
        with open(file, "rb", closefd=False) as submission:
            submission.seek(0)
            results, notes = grade_one(suite, sandbox, pickle.load(submission), limits)  # noqa: S301 (the course's own)
        line = {"results": [result.as_json() for result in results], "notes": notes.as_json()}
    except Faulty as error:
        line = {"fault": str(error)}
    except BaseException as error:
        line = {"fault": f"{type(error).__name__}: {error}"}
    try:
        _write(pipe, json.dumps(line, ensure_ascii=False))
    finally:
        os._exit(0)


def _write(pipe: int, text: str) -> None:
    # Half a character is no text, and no database takes it. Nobody reads the pipe when the command has been killed.
    with suppress(BrokenPipeError), open(pipe, "w", encoding="utf-8", errors="replace", newline="") as file:
        file.write(text)


def _trouble(sandbox: Sandbox) -> str:
    """Start the sandbox again if it gives no workers; why that cannot be done."""
    try:
        try:
            sandbox.check()
        except SandboxError:
            sandbox.restart()
    except SandboxError as error:
        return str(error)
    return ""


def layer_of(sandbox: Sandbox) -> str:
    """All that stands between a submission and this machine."""
    return "+".join((sandbox.achieved.layer, *sandbox.achieved.parts))


def identity(suite: GradedSuite) -> dict[str, str]:
    """Name all in which two hosts must agree."""
    return {"Python": sys.version, "torch": torch.__version__, "suite": suite.sha256}


def main(control: socket.socket, layer: str) -> None:
    """Load the suite and start the sandbox, say so or why not, and serve."""
    try:
        with ready(ROOT, layer) as (suite, sandbox):  # pyright: ignore[reportArgumentType]
            control.send(json.dumps({"layer": layer_of(sandbox), "identity": identity(suite)}).encode())
            serve(control, suite, sandbox, suite.limits)
    except (AssignmentError, SuiteError, SandboxError) as error:
        control.send(json.dumps({"error": str(error)}).encode())


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
