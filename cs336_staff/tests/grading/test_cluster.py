"""A class graded by Dask workers, which are killed, frozen, refused and left alone.

A real scheduler and workers, each a process, on this machine. The tests share it and one of the workers; the last one
kills the scheduler.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from distributed import Client, Scheduler

from cs336_staff.cli import staff
from cs336_staff.grading import batch
from cs336_staff.grading.cluster import SILENT_SECONDS, Cluster, Needs, connect
from cs336_staff.grading.gradebook import Gradebook
from cs336_staff.grading.graders import Host, HostError, identity, layer_of
from cs336_staff.grading.grading import Grading
from cs336_staff.grading.suite import GradedSuite
from cs336_staff.sandbox.confinement import start_both
from cs336_staff.tests.grading.test_faults import HONEST, SLOW, start_grade
from cs336_staff.tests.under_load import without_measures
from cs336_staff.tools.student import ROOT, write_submission

PATIENCE = 900  # seconds; only a failing test waits as long
WORKER_TTL = 90  # seconds without a word, after which a worker may be given up; a busy machine may need some
SLEEPER = SLOW.replace("sleep(2)", "sleep(1)")  # less than the advice waits for the import
ENVIRONMENT = {
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": f"{WORKER_TTL}s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "5s",
}


@dataclass
class Machines:
    """The scheduler's file, what has been started, and the worker that no test kills."""

    folder: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    staying: subprocess.Popen[bytes] | None = None

    @property
    def scheduler_file(self) -> Path:
        return self.folder / "scheduler.json"

    def start(self, what: str, *arguments: str, root: Path = ROOT) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", "--no-dashboard", "--scheduler-file"]
        with (self.folder / "log.txt").open("ab") as log:
            process = subprocess.Popen(
                [*command, str(self.scheduler_file), *arguments],
                cwd=root,
                env={**os.environ, **ENVIRONMENT},
                stdout=log,
                stderr=log,
            )
        self.started.append(process)
        return process

    def start_worker(self, root: Path = ROOT) -> subprocess.Popen[bytes]:
        local = ("--local-directory", str(self.folder))
        return self.start("worker", "--no-nanny", "--nthreads", "1", *local, root=root)

    def have_worker(self) -> None:
        """Start the one that stays, unless it is there."""
        self.staying = self.staying or self.start_worker()


@dataclass(frozen=True)
class Class:
    """What is graded, what a host must have for it, and what this machine alone recorded."""

    suite: GradedSuite
    needs: Needs
    paths: list[Path]
    recorded: dict[str, Grading]


@pytest.fixture(scope="module")
def graded_here(tmp_path_factory: pytest.TempPathFactory, graded_suite: GradedSuite) -> Class:
    folder = tmp_path_factory.mktemp("class")
    paths = [write_submission(folder / "right", ""), folder / "half.py", folder / "refused.zip"]
    paths[1].write_text(f"print('half', chr(0xd800), flush=True)\n{HONEST.read_text()}", encoding="utf-8")
    with zipfile.ZipFile(paths[2], "w") as archive:
        archive.writestr("../adapters.py", "")
    paths.append(folder / "slow.py")
    paths[-1].write_text(f"{SLEEPER}{HONEST.read_text()}")
    with start_both() as sandbox:
        done = batch.grade(graded_suite, sandbox, paths, folder / "results", jobs=2)
        assert (done.done, done.faults) == (len(paths), [])
        return Class(
            graded_suite, Needs(identity(graded_suite), layer_of(sandbox)), paths, recorded(folder / "results")
        )


@pytest.fixture(scope="module")
def machines(graded_here: Class, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    del graded_here  # it forks, and so it is there before the threads of a client are
    machines = Machines(tmp_path_factory.mktemp("cluster"))
    machines.start("scheduler", "--host", "127.0.0.1", "--port", "0")
    wait_until(machines.scheduler_file.exists)
    yield machines
    for process in machines.started:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def client(machines: Machines) -> Iterator[Client]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        import dask.config

        dask.config.refresh()
        with connect(str(machines.scheduler_file)) as client:
            yield client


@dataclass
class Seen:
    """What staff were told."""

    lines: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)

    def told_of(self, words: str) -> bool:
        return any(words in line for line in self.lines)


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, condition
        time.sleep(0.1)


def recorded(out: Path) -> dict[str, Grading]:
    """What the gradebook has of each submission, without time and memory; one that is there twice raises."""
    with Gradebook(out / "gradebook.sqlite") as gradebook:
        found = {each.submission: each for each in gradebook.latest()}
        assert len(list(gradebook.attempts())) == len(found)
    return {name: without_measures(grading) for name, grading in found.items()}


def grade(
    graded: Class,
    client: Client,
    paths: list[Path],
    out: Path,
    seen: Seen,
    act: Callable[[], object] = bool,
    workers: int = 0,
) -> batch.Progress:
    """Grade on the cluster, once this many `workers` have joined; `act` is called again and again meanwhile."""

    def show(now: batch.Progress) -> None:
        seen.waits.append(now.waits_for)
        act()

    graders = Cluster(client, graded.needs, seen.lines.append).graders
    wait_until(lambda: sum(" joins, " in line for line in seen.lines) >= workers)
    return batch.grade_by(graders, graded.suite, paths, out, show=show)


def is_grading(worker: subprocess.Popen[bytes]) -> bool:
    """Whether one of the slow submissions runs on it now."""
    with_children = psutil.Process(worker.pid).children(recursive=True)
    return any(process.name() == "sleeper" for process in with_children if process.is_running())


def copy_course(folder: Path) -> Path:
    """A checkout with other limits, which belong to the suite."""
    left_out = shutil.ignore_patterns(".*", "__pycache__", "docs", "mutants", "results")
    root = Path(shutil.copytree(ROOT, folder / "other", ignore=left_out))
    (root / "cs336_staff" / "course.toml").write_text("[limits]\ncall_seconds = 11\n")
    return root


@pytest.mark.slow
def test_the_records_are_those_of_one_machine_and_a_host_of_another_suite_is_refused(
    graded_here, machines, client, tmp_path
):
    seen, other = Seen(), copy_course(machines.folder)

    def start_workers() -> None:
        """When the command has said that there are none: they may join at any time."""
        if len(machines.started) == 1 and any("has none" in line for line in seen.waits):
            machines.start_worker(root=other)
            machines.have_worker()

    done = grade(graded_here, client, graded_here.paths, tmp_path, seen, start_workers)
    wait_until(lambda: seen.told_of("is refused"))
    assert (done.done, done.faults) == (len(graded_here.paths), [])
    found = recorded(tmp_path)
    assert found == graded_here.recorded
    assert "half" in found["half.py"].notes.stdout
    address = client.scheduler.address
    assert f"waiting for a worker: {address} has none" in seen.waits
    assert seen.told_of(f"joins, with the sandbox {graded_here.needs.layer}")
    expected = graded_here.suite.sha256[:12]
    assert seen.told_of(f"expected {expected}; give it the same checkout, hidden cases and limits")
    refused = next(line for line in seen.lines if "is refused: it has the suite" in line)
    assert refused.startswith("tcp://127.0.0.1:")


@pytest.mark.slow
def test_what_a_killed_and_a_frozen_worker_had_is_graded_once(graded_here, machines, client, tmp_path):
    machines.have_worker()
    blows = {machines.start_worker(): signal.SIGKILL, (frozen := machines.start_worker()): signal.SIGSTOP}
    seen, begun, given_up = Seen(), dict[subprocess.Popen[bytes], list[psutil.Process]](), []

    def strike() -> None:
        for worker in blows.keys() - begun.keys():
            if is_grading(worker):
                begun[worker] = psutil.Process(worker.pid).children(recursive=True)
                worker.send_signal(blows[worker])
        if any("which does not answer" in line for line in seen.waits) and not given_up:
            given_up.append(client.run_on_scheduler(give_up_silent_workers))

    done = grade(graded_here, client, slow_ones(graded_here, tmp_path), tmp_path / "results", seen, strike, 3)
    assert begun.keys() == blows.keys(), "one was not struck while it graded"
    assert (done.done, done.faults) == (done.total, [])
    assert len(recorded(tmp_path / "results")) == done.total
    assert any("which does not answer" in line for line in seen.waits)
    frozen.send_signal(signal.SIGCONT)
    for worker, processes in begun.items():
        worker.wait(PATIENCE)  # the frozen one finds out that it has been given up
        wait_until(
            lambda processes=processes: not any(process.is_running() for process in processes)
        )  # nothing goes on


async def give_up_silent_workers(dask_scheduler: Scheduler) -> None:
    """Have the scheduler look now for workers without a word, which it would do by itself every WORKER_TTL seconds."""
    ttl, dask_scheduler.worker_ttl = dask_scheduler.worker_ttl, SILENT_SECONDS
    await dask_scheduler.check_worker_ttl()
    dask_scheduler.worker_ttl = ttl


def slow_ones(graded: Class, folder: Path) -> list[Path]:
    """Enough of them that every worker has one."""
    paths = [folder / f"slow-{i}.py" for i in range(5)]
    for i, path in enumerate(paths):
        path.write_text(f"{graded.paths[-1].read_text()}\n# {folder.name} {i}\n")
    return paths


@pytest.mark.slow
def test_a_killed_command_goes_on_where_it_was(graded_here, machines, client, tmp_path):
    machines.have_worker()
    out = tmp_path / "results"
    paths = [graded_here.paths[1], *slow_ones(graded_here, tmp_path)]
    with start_grade(*paths, "--out", out, "--cluster", machines.scheduler_file) as command:
        wait_until(lambda: (out / "half.py" / "results.json").exists() or command.poll() is not None)
        command.kill()
        assert command.stdout is not None
        printed = command.stdout.read()
    assert "joins, with the sandbox" in printed, printed
    before = recorded(out)
    assert 1 <= len(before) < len(paths)
    done = grade(graded_here, client, paths, out, Seen())
    assert (done.done, done.already, done.faults) == (len(paths), len(before), [])
    assert before.items() <= recorded(out).items()


@pytest.mark.slow
def test_a_lost_scheduler_ends_the_batch_and_loses_nothing(graded_here, machines, client, tmp_path):
    machines.have_worker()
    seen = Seen()

    def kill() -> None:
        if (tmp_path / "results" / "half.py").exists():
            machines.started[0].kill()

    paths = [graded_here.paths[1], *slow_ones(graded_here, tmp_path)]
    with pytest.raises(HostError, match=r"the scheduler tcp://127.0.0.1:\d+ is lost; run the same command to go on"):
        grade(graded_here, client, paths, tmp_path / "results", seen, kill)
    assert any(line.startswith("waiting for the scheduler: tcp://127.0.0.1:") for line in seen.waits)
    assert "half.py" in recorded(tmp_path / "results")


@pytest.mark.parametrize(
    ("identity", "layer", "why"),
    [
        ({"Python": "3.12.1"}, "user+landlock", "it has Python 3.12.1, expected 3.11.7"),
        ({"torch": "2.6.0+cpu"}, "user+landlock", r"it has torch 2.6.0\+cpu, expected 2.15.0"),
        ({"suite": "b" * 64}, "user+landlock", f"it has the suite {12 * 'b'}, expected {12 * 'a'}; give it the same"),
        ({}, "user", r"its sandbox is user, expected user\+landlock"),
        ({}, "landlock+seccomp+user", None),
    ],
)
def test_a_host_must_have_the_same_suite_python_and_torch_and_no_weaker_sandbox(identity, layer, why):
    same = {"Python": "3.11.7", "torch": "2.15.0", "suite": "a" * 64}
    control, theirs = socket.socketpair()
    refused = pytest.raises(HostError, match=why) if why else nullcontext()
    with theirs, closing(Host(control, bool, layer, same | identity)) as host, refused:
        Needs(same, "user+landlock").check(host)


def test_whoever_lacks_dask_is_told(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "cs336_staff.grading.cluster", None)
    told = CliRunner().invoke(staff, ["grade", str(tmp_path), "--cluster", "tcp://127.0.0.1:8786"])
    assert told.exit_code == 1
    assert "--cluster needs dask.distributed, here and on every host: uv sync --extra cluster" in told.output
