"""Grade on the hosts of a Dask cluster: a scheduler and workers that somebody has started, each from a checkout.

The command reads what was handed in and writes the gradebook. A Dask worker is given one submission at a time for each
of its threads, and asks the process beside it, which holds the suite and the sandbox (`graders.py`). Which workers may
be given any is known to the scheduler: those that have a resource named after the suite, and they get it when their
suite, Python, torch and sandbox have been compared with the command's. The scheduler gives what a lost worker had to
another one.
"""

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import Client, Worker, get_worker

from cs336_staff.grading.graders import Graders, Host, HostError, Record, start_host
from cs336_staff.sandbox.submission import Submission

AHEAD = 4  # submissions that are on their way while all threads are busy
LOOK_SECONDS = 1.0
SILENT_SECONDS = 15.0  # workers say several times in this that they are there
SHOWN = 12  # digits of a hash in a message


@dataclass(frozen=True)
class Needs:
    """All that a host must have: `identity` as `graders.identity` gives it, and a sandbox with all parts of `layer`."""

    identity: Mapping[str, str]
    layer: str

    @property
    def resource(self) -> str:
        return f"cs336-{self.identity['suite'][:SHOWN]}-{self.layer}"

    def check(self, host: Host) -> None:
        """Raise HostError if `host` is another one."""
        for name, expected in self.identity.items():
            if (got := host.identity[name]) != expected:
                if name != "suite":
                    raise HostError(f"it has {name} {got}, expected {expected}")
                todo = "give it the same checkout, hidden cases and limits"
                raise HostError(f"it has the suite {got[:SHOWN]}, expected {expected[:SHOWN]}; {todo}")
        if not set(self.layer.split("+")) <= set(host.layer.split("+")):
            raise HostError(f"its sandbox is {host.layer}, expected {self.layer}")


# On a worker.

_host: Host | None = None
_opening = threading.Lock()


def _open(needs: Needs) -> Host:
    """The process beside this worker; started, or started again if it holds another suite."""
    global _host
    with _opening:
        if _host is not None:
            with suppress(HostError):
                needs.check(_host)
                return _host
            _host.close()
            _host = None
        host = start_host(needs.layer.partition("+")[0])
        try:
            needs.check(host)
        except HostError:
            host.close()
            raise
        _host = host
        return host


async def join(needs: Needs, dask_worker: Worker) -> str:
    """Start the process beside this worker, and let the scheduler know that it may be given submissions.

    Returns:
        its sandbox.

    Raises:
        HostError: it is not as it should be.
    """
    host = await asyncio.to_thread(_open, needs)
    await dask_worker.set_resources(**{needs.resource: dask_worker.state.nthreads})
    return host.layer


def grade(needs: Needs, submission: Submission, sealed: bytes) -> Record:
    """Grade a submission on this worker, which ends if it cannot: it would be given the next one at once."""
    host = None
    try:
        host = _open(needs)
        return host.grade(submission, sealed)
    except HostError as error:
        worker = get_worker()
        if host is _host:  # and not closed because another command needs another suite
            worker.loop.add_callback(worker.close, executor_wait=False, nanny=False, reason=str(error))
        return Record(fault=f"{worker.address}: {error}")


# In the command.


class Cluster:
    """The scheduler and its workers, as the command sees them."""

    def __init__(self, client: Client, needs: Needs, say: Callable[[str], None]) -> None:
        """Begin to let workers join.

        Args:
            client: of the scheduler.
            needs: what a host must have.
            say: told of each worker that joins or is refused; from another thread.
        """
        self.client, self.needs, self.say = client, needs, say
        self._scheduler: Any = client.scheduler
        self.scheduler = str(self._scheduler.address)
        self.executor = client.get_executor(pure=False, resources={needs.resource: 1})
        self._asked: set[str] = set()
        self._joined: set[str] = set()
        self._workers: dict[str, dict[str, Any]] = {}
        self._heard: dict[str, tuple[float, float]] = {}  # when each was there: by its own clock, and by ours
        threading.Thread(target=self._look, daemon=True).start()

    @property
    def graders(self) -> Graders:
        return Graders(self.submit, self.capacity, self.waits_for)

    def submit(self, submission: Submission, sealed: bytes) -> "Future[Record]":
        return self.executor.submit(grade, self.needs, submission, sealed)

    def capacity(self) -> int:
        """Return how many submissions may be under way.

        Raises:
            HostError: the scheduler is lost.
        """
        if self.client.status == "closed":
            raise HostError(f"the scheduler {self.scheduler} is lost; run the same command to go on, with another one")
        threads = sum(self._workers[address]["nthreads"] for address in self._ready())
        return threads + AHEAD if threads and self.client.status == "running" else 0

    def waits_for(self) -> str:
        """Say why nothing happens; empty while something does."""
        if self.client.status != "running":
            return f"waiting for the scheduler: {self.scheduler} does not answer"
        ready = self._ready()
        silent = [address for address in ready if time.monotonic() - self._heard[address][1] > SILENT_SECONDS]
        if silent:
            return f"waiting for {', '.join(sorted(silent))}, which does not answer"
        if ready:
            return ""
        if self._asked:
            return f"waiting for a worker: {len(self._asked)} of {self.scheduler} are loading the suite"
        return f"waiting for a worker: {self.scheduler} has none" + " that fits" * bool(self._workers)

    def _ready(self) -> list[str]:
        return [address for address in self._workers if address in self._joined]

    def _look(self) -> None:
        """See who has come, gone and fallen silent, until the client is closed."""
        while self.client.status != "closed":
            with suppress(Exception):  # the scheduler is being lost; `status` will say so
                # Not `scheduler_info`, which may give what the client itself has asked for meanwhile, without workers.
                about: Any = self.client.sync(self._scheduler.identity, n_workers=-1)
                workers = about["workers"]
                for address, worker in workers.items():
                    if self._heard.get(address, (None,))[0] != worker["last_seen"]:
                        self._heard[address] = worker["last_seen"], time.monotonic()
                for address in workers.keys() - self._workers.keys():
                    self._asked.add(address)
                    threading.Thread(target=self._ask_to_join, args=(address,), daemon=True).start()
                self._joined &= workers.keys()  # another one may come to the same address
                self._workers = workers
            time.sleep(LOOK_SECONDS)

    def _ask_to_join(self, address: str) -> None:
        try:
            answers: Any = self.client.run(join, self.needs, workers=[address], on_error="return")
            said = answers[address]
        except Exception as error:
            said = error
        self._asked.discard(address)
        if isinstance(said, Exception):
            self.say(f"{address} is refused: {said}")
        else:
            self._joined.add(address)
            self.say(f"{address} joins, with the sandbox {said}")


@contextmanager
def connect(where: str) -> Iterator[Client]:
    """Connect to the scheduler at an address, or to the one that wrote the file `where`.

    Raises:
        HostError: it does not answer.
    """
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters is said by `Cluster`
    try:
        client = Client(json.loads(Path(where).read_text())["address"] if Path(where).is_file() else where)
    except (OSError, ValueError, KeyError, TypeError) as error:
        expected = "expected tcp://HOST:PORT of a scheduler that answers, or the file that it wrote"
        raise HostError(f"--cluster {where}: {error}; {expected}") from None
    with client:
        yield client
