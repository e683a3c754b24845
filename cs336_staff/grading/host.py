"""Ask a process that holds the collected suite to grade submissions; any number of threads may ask at the same time.

That process has no threads, so that it may fork (`cs336_staff/grading/forks.py`). On one machine it is a fork of the
command; each worker of a cluster has one of its own, a fresh interpreter. This side needs no torch.
"""

import json
import os
import pickle
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from cs336_kit.engine.result import Result, result_from_json
from cs336_staff.grading.gradebook import Notes, notes_from_json
from cs336_staff.sandbox.submission import Submission

ROOT = Path(__file__).parents[2]
CHUNK = 1 << 16


class HostError(Exception):
    """The process that grades has ended, or gives no more workers, or is not what was asked for."""


@dataclass(frozen=True)
class Record:
    """One submission, graded or not.

    Attributes:
        results: one for each test.
        notes: what else the report says.
        fault: why it was not graded, and not by its own doing.
        layer: the sandbox that it ran in.
        started: when, with the offset from UTC.
        seconds: how long it took.
    """

    results: Sequence[Result] = ()
    notes: Notes = field(default_factory=Notes)
    fault: str = ""
    layer: str = "not run"
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    seconds: float = 0.0


@dataclass(frozen=True)
class Graders:
    """Whoever grades for a batch: processes of this machine, or the hosts of a cluster.

    Attributes:
        submit: has an executor grade a submission. Of a future that is cancelled the submission is submitted again.
        capacity: how many may be under way now; raises HostError when nothing can be graded any more.
        waits_for: why nothing happens; empty while something does.
    """

    submit: Callable[[Submission], Future[Record]]
    capacity: Callable[[], int]
    waits_for: Callable[[], str] = str


class Host:
    """The other process, seen from this side."""

    def __init__(
        self, control: socket.socket, wait: Callable[[], object], layer: str, identity: Mapping[str, str] | None = None
    ) -> None:
        """Take over a process that serves `control`; `wait` returns when it has ended."""
        self.layer, self.identity, self._control, self._wait = layer, identity or {}, control, wait

    def grade(self, submission: Submission) -> Record:
        """Grade it in a fork of that process, which is given a new sandbox if this fails because it needs one.

        Raises:
            HostError: the process has ended, or gets no sandbox.
        """
        started, clock = datetime.now(UTC), time.monotonic()
        # First what the fork has said, cut off if it was killed; in the last line how it ended.
        said, _, status = self._ask(b"grade", pickle.dumps(submission)).rpartition(b"\n")
        record = partial(Record, layer=self.layer, started=started, seconds=time.monotonic() - clock)
        if status != b"0":
            fault = f"the grading process ended with exit status {status.decode()}"
        elif not (fault := (line := json.loads(said)).get("fault", "")):
            return record([*map(result_from_json, line["results"])], notes_from_json(line["notes"]))
        if trouble := self._ask(b"check").removesuffix(b"\n0"):
            raise HostError(trouble.decode())
        return record(fault=fault)

    def close(self) -> None:
        """End the process and all its forks; whoever waits for one gets a HostError."""
        self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        self._wait()

    def __enter__(self) -> "Host":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, what: bytes, data: bytes = b"") -> bytes:
        """Send a message as one piece, with a file to read and a pipe to write to; the answer ends with a status."""
        read, write = os.pipe()
        with open(read, "rb") as answer:
            try:
                with open(os.memfd_create("submission"), "wb") as file:
                    file.write(data)
                    file.flush()
                    socket.send_fds(self._control, [what], [file.fileno(), write])
            except OSError:
                pass  # there will be no answer
            finally:
                os.close(write)
            said = answer.read()
        if re.search(rb"\n-?\d+\Z", said) is None:
            raise HostError("the process that holds the suite has ended; run the same command to go on")
        return said


def start_host(layer: str) -> Host:
    """Start a fresh interpreter that loads the suite of this checkout and starts the sandbox `layer`. Takes seconds.

    Raises:
        HostError: it cannot do so; the message says why.
    """
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "cs336_staff.grading.forks", str(theirs.fileno()), layer]
    with theirs:
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    ready = json.loads(control.recv(CHUNK) or '{"error": "it ended while it loaded the suite; its log says why"}')
    host = Host(control, process.wait, ready.get("layer", ""), ready.get("identity"))
    if error := ready.get("error"):
        host.close()
        raise HostError(error)
    return host
