"""What a submission cannot do, in every layer: each attempt is made, and its failure is seen from the trusted side."""

import ctypes
import errno
import os
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from staff.tests.files import write_files
from staff.tests.live import connect
from whichline.engine.errors import StudentRaised
from whichline_grader.sandbox import confinement as sandboxes
from whichline_grader.sandbox import interview
from whichline_grader.sandbox.confinement import Sandbox, SandboxError
from whichline_grader.sandbox.connection import Connection
from whichline_grader.sandbox.inside.randomness import seed
from whichline_grader.sandbox.interview import Starved
from whichline_grader.sandbox.reply import LimitExceeded, ProtocolViolation, TimedOut, WorkerDied
from whichline_grader.sandbox.submission import Submission
from whichline_grader.sandbox.zygote_files import ENVIRONMENT

from .conftest import ROOT, Run, start

X = torch.ones(2)
MANY = "blocks = []\nwhile True: blocks.append(torch.ones(1 << 22))"
BOMBS = {"tensors": MANY, "one": "torch.ones(1 << 40)", "string": "'x' * (1 << 40)"}
LARGE = "torch.ones(100 << 20, dtype=torch.uint8)"
GRADER = """
import sys, torch
from whichline_grader.sandbox import confinement as sandbox, limits, submission
from staff.tests.live import connect
loop = submission.Submission("x", {"adapters.py": b"while True: pass"}, "adapters")
with sandbox.start(sys.argv[1]) as started:
    adapters = connect(started, loop, limits.Limits(call_seconds=60))
    print(started._process.pid, flush=True)
    adapters.run_softmax(torch.ones(1), 0)
"""
RANDOM = """
import random
import numpy
import torch
first = random.random()
def run_softmax(x, dim):
    return torch.tensor([first, random.random(), numpy.random.rand(), torch.rand(1).item(), hash("a") % 1000])
"""


def trying(statements: str) -> str:
    """A submission that runs `statements` when it is called; a failure to be confined shows as the value True."""
    body = "".join(f"    {line}\n" for line in statements.splitlines())
    head = "import ctypes, mmap, os, signal, socket, struct, subprocess, sys, threading, time, torch\n"
    return f"{head}libc = ctypes.CDLL(None, use_errno=True)\ndef run_softmax(x, dim):\n{body}    return True\n"


@pytest.mark.every_layer
def test_layers(sandbox: Sandbox) -> None:
    parts = set(sandbox.achieved.parts)
    assert "seccomp" in parts
    assert parts & ({"namespaces"} if sandbox.achieved.layer == "bubblewrap" else {"uid", "landlock"})


@pytest.mark.every_layer
def test_a_worker_is_not_root_and_has_a_session_of_its_own(run: Run) -> None:
    """Linux shares the processors fairly among sessions, however many threads one has."""
    adapters = run(trying("pass"))
    adapters.run_softmax(X, 0)
    process = psutil.Process(adapters.respondent.interview._connection.process.pid)
    assert os.getsid(process.pid) == process.pid
    assert 0 not in (*process.uids(), *process.gids())
    assert "Groups:\t \n" in Path(f"/proc/{process.pid}/status").read_text() or os.getuid() != 0


# What the catalogue of attacks does not try in every layer.
ATTEMPTS = {
    "unix socket": "socket.socketpair()",
    "kill everything": "os.kill(-1, signal.SIGKILL)",
    "kill a thread": "signal.pthread_kill(threading.get_ident(), 0)",
    "mkdir": "os.mkdir('/tmp/cs336-attack')",
    "chmod": f"os.chmod({str(ROOT)!r}, 0o700)",
    "unlink": f"os.unlink({str(ROOT / 'adapters.py')!r})",
    "pipe": "os.pipe()",
    "shared memory": "mmap.mmap(-1, 4096)",
    "lower the guard": "signal.pthread_sigmask(signal.SIG_BLOCK, []); os.setuid(1)",
    "raise a limit": "import resource; resource.prlimit(1, resource.RLIMIT_CPU)",
    "read the grader": f"open('/proc/{os.getpid()}/environ', 'rb').read()",
    "read the parent": "open(f'/proc/{os.getppid()}/mem', 'rb').read(1)",
    "read the hidden suite": f"open({str(ROOT / 'packages/grader/whichline_grader/hidden/release.py')!r})",
    "read this test": f"open({str(Path(__file__))!r})",
    "read /etc/passwd": "open('/etc/passwd')",
}


@pytest.mark.parametrize("attempt", ATTEMPTS)
@pytest.mark.every_layer
def test_forbidden_system_calls(run: Run, attempt: str) -> None:
    with pytest.raises(StudentRaised) as caught:
        run(trying(ATTEMPTS[attempt])).run_softmax(X, 0)
    assert caught.value.type in ("PermissionError", "FileNotFoundError", "OSError", "ProcessLookupError")


@pytest.fixture
def files_of_its_own(sandbox: Sandbox) -> None:
    if not {"namespaces", "mounts"} & set(sandbox.achieved.parts):
        pytest.skip("no user namespaces here")


@pytest.mark.usefixtures("files_of_its_own")
@pytest.mark.every_layer
def test_it_sees_no_other_file_and_of_usr_only_libraries(run: Run) -> None:
    paths = [str(ROOT / "adapters.py"), "/etc/passwd", "/sys/kernel", "/usr/bin"]
    seen = run(trying(f"return [path for path in {paths} if os.path.exists(path)]")).run_softmax(X, 0)
    assert seen == ["/usr/bin"] * (sys.base_prefix == "/usr")


def test_bubblewrap_shows_no_host_name(run: Run, sandbox: Sandbox) -> None:
    if sandbox.achieved.layer != "bubblewrap":
        pytest.skip("there is no namespace for it")
    assert run(trying("return os.uname().nodename")).run_softmax(X, 0) == "sandbox"


@pytest.mark.usefixtures("files_of_its_own")
@pytest.mark.every_layer
def test_what_it_reads_is_not_marked_as_read(run: Run) -> None:
    """A later submission would see by the access times which files this one chose: any hidden input, bit for bit."""
    with tempfile.TemporaryDirectory(dir=sysconfig.get_path("purelib")) as name:
        folder, file, link = Path(name), Path(name, "file"), Path(name, "link")
        file.write_text("x")
        link.symlink_to("file")
        folder.chmod(0o755)
        for path in (folder, file, link):
            os.utime(path, (1, 2), follow_symlinks=False)  # the kernel marks only the first reading after a change
        looking = f"return [open({str(link)!r}).read(), len(os.listdir({str(folder)!r}))]"
        assert run(trying(looking)).run_softmax(X, 0) == ["x", 2]
        assert [path.lstat().st_atime for path in (folder, file, link)] == [1, 1, 1]


RAW = {
    "tgkill": (234, "os.getppid(), os.getppid(), 9"),
    "rt_sigqueueinfo": (129, "os.getppid(), 9, 0"),
    "rt_tgsigqueueinfo": (297, "os.getppid(), os.getppid(), 9, 0"),
    "pidfd_send_signal": (424, "0, 9, 0, 0"),
    "ptrace": (101, "16, os.getppid(), 0, 0"),
    "process_vm_readv": (310, "os.getppid(), 0, 0, 0, 0, 0"),
    "userfaultfd": (323, "0"),
    "io_uring_setup": (425, "1, 0"),
    "bpf": (321, "0, 0, 0"),
    "perf_event_open": (298, "0, 0, -1, -1, 0"),
    "keyctl": (250, "0, 0"),
    "unshare": (272, "0x10000000"),
    "clone3": (435, "0, 0"),  # it seems not to exist
    "clone of a process": (56, "17, 0, 0, 0, 0"),
    "clone that is waited for": (56, "0x14f00, 0, 0, 0, 0"),
    # What they tell of the machine, a later submission can tell too: load, memory, pages that were in memory before.
    "sysinfo": (99, "ctypes.create_string_buffer(128)"),
    "getrusage": (98, "0, ctypes.create_string_buffer(256)"),
    "mincore": (27, "0, 0, 0"),
    "cachestat": (451, "0, 0, 0, 0"),
    "preadv2": (327, "0, 0, 0, 0, 0, 8"),
    "statfs": (137, "b'/', ctypes.create_string_buffer(256)"),
    "sysv shared memory": (29, "0, 4096, 0o600"),
    "mq_open": (240, "b'/x', 0o102, 0o600, 0"),
    "set dumpable": (157, "4, 1, 0, 0, 0"),
    "F_SETOWN": (72, "3, 8, os.getppid()"),
    "TIOCSTI": (16, "0, 0x5412, b'x'"),
    "grow down": (9, "0, 4096, 3, 0x122, -1, 0"),
    "setpriority": (141, "0, 1, 19"),
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="system calls have other numbers here")
@pytest.mark.parametrize("attempt", RAW)
def test_raw_system_calls(run: Run, attempt: str) -> None:
    number, arguments = RAW[attempt]
    source = trying(f"return [libc.syscall({number}, {arguments}), ctypes.get_errno()]")
    assert run(source).run_softmax(X, 0) == [-1, errno.ENOSYS if attempt == "clone3" else errno.EPERM]


def test_nothing_of_ours_can_be_imported(run: Run) -> None:
    for name in ("whichline_grader.grading", "whichline_grader.authoring.programs", "whichline", "cs336_basics"):
        with pytest.raises(StudentRaised, match="ModuleNotFoundError: No module named"):
            run(trying(f"__import__({name!r})")).run_softmax(X, 0)


def test_the_environment_says_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CS336_NOT_FOR_STUDENTS", "x")
    assert set(run(trying("return list(os.environ)")).run_softmax(X, 0)) <= {*ENVIRONMENT, "PWD", "LC_CTYPE"}


def test_the_grader_cannot_be_dumped(sandbox: Sandbox) -> None:
    assert ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 0  # PR_GET_DUMPABLE


@pytest.mark.parametrize(
    "loop",
    [
        "time.sleep(60)",
        "lock = threading.Lock(); lock.acquire(); lock.acquire()",
        "threading.stack_size(1 << 16)\n"
        "while True: threading.Thread(target=time.sleep, args=(60,)).start(); time.sleep(0.05)",
        "for _ in range(9): threading.Thread(target=lambda: any(iter(int, 1))).start()\nany(iter(int, 1))",
    ],
)
def test_loops_are_ended(run: Run, loop: str) -> None:
    adapters = run(trying(loop), call_seconds=0.3, threads=4096)  # of which a busy machine lets it start many
    with pytest.raises(TimedOut, match=r"run_softmax: no answer within 0\.3 s in which it computed or slept"):
        adapters.run_softmax(X, 0)


def test_a_loop_at_import_is_ended_once(run: Run) -> None:
    adapters = run("while True: pass", call_seconds=0.3)
    for _ in range(5):
        with pytest.raises(TimedOut, match=r"the import: no answer within 0\.3 s"):
            adapters.run_softmax(X, 0)
    assert adapters.respondent.interview.spent.seconds["run_softmax"] < 0.6


def test_a_machine_that_is_too_busy_is_not_the_submissions_fault(run: Run) -> None:
    adapters = run(trying("while True: pass"), call_seconds=9.0, patience=0.05)
    said = r"no answer within \d+ s on the clock, of which it computed or slept for 0\.\d s"
    with pytest.raises(Starved, match=said):
        adapters.run_softmax(X, 0)


def test_each_function_as_a_whole_is_limited_and_no_other_pays_for_it(run: Run) -> None:
    slow = trying("time.sleep(0.9 if x.ndim == 1 else 60)")
    adapters = run(slow + "def run_linear(*_): return run_softmax(torch.ones(1), 0)\n", seconds=1.0)
    adapters.run_softmax(X, 0)
    with pytest.raises(TimedOut, match="no answer within the 1 s that all its calls may take"):
        adapters.run_softmax(X[None], 0)
    with pytest.raises(TimedOut, match="run_softmax has used the 1 s that all its calls may take"):
        adapters.run_softmax(X, 0)
    adapters.run_linear(1, 1, X, X)


def test_a_submission_that_stalls_is_given_up(run: Run) -> None:
    source = trying("while True: pass") + "run_linear = run_rope = lambda *_: run_softmax(0, 0)\n"
    adapters = run(source, call_seconds=0.5)
    for expected in (*["no answer within 0.5 s"] * 2, "run_softmax is not called again", "is not called"):
        with pytest.raises(TimedOut, match=expected):
            adapters.run_softmax(X, 0)
    for expected in ("no answer within 0.1 s", "run_linear is not called again"):
        with pytest.raises(TimedOut, match=expected):
            adapters.run_linear(1, 1, X, X)
    assert sum(adapters.respondent.interview.spent.seconds.values()) < 1.5


@pytest.mark.every_layer
def test_ids_and_proc_tell_nothing(run: Run, sandbox: Sandbox) -> None:
    """A worker that used up ids would tell a later one how many."""
    if "ids" not in sandbox.achieved.parts:
        pytest.skip("no user namespaces here")
    ids = trying("return [os.getpid(), os.getppid(), os.path.exists('/proc/self')]")
    assert run(ids).run_softmax(X, 0) == [1, 0, False]
    start_thread = "thread = threading.Thread(target=int); thread.start(); thread.join()\n"
    using = f"for _ in range(300):\n    {start_thread}"
    assert run(trying(f"{using}return thread.native_id > 300")).run_softmax(X, 0) is True
    assert run(trying(f"{start_thread}return thread.native_id")).run_softmax(X, 0) == 2


@pytest.mark.parametrize("bomb", BOMBS)
def test_memory_is_limited(run: Run, bomb: str) -> None:
    with pytest.raises((LimitExceeded, StudentRaised), match=r"MemoryError|can't allocate|MiB of memory"):
        run(trying(BOMBS[bomb]), memory_bytes=1 << 30).run_softmax(X, 0)


@pytest.mark.parametrize(
    "source",
    [f"def run_softmax(x, dim): return {LARGE}[:1]\n", f"table = {LARGE}\ndef run_softmax(x, dim): return x[:1]\n"],
    ids=["in the call", "in the import"],
)
def test_a_call_may_be_held_to_less_memory(run: Run, source: str) -> None:
    adapters = run(f"import torch\n{source}")
    adapters.respondent.memory = 96 << 20
    with pytest.raises(StudentRaised, match="can't allocate"):
        adapters.run_softmax(X, 0)
    adapters.respondent.memory = None
    assert adapters.run_softmax(X, 0).tolist() == [1]


def test_small_tensors_that_are_kept_do_not_hold_large_ones(run: Run) -> None:
    """A strip of 9 MiB at a time, of which 24 kB are kept: without more, malloc maps 30 strips beside each other."""
    strips = "[torch.rand(400, 5900).softmax(-1).sum(-1) for _ in range(30)]"
    adapters = run(f"import torch\ndef run_softmax(x, dim):\n    return torch.cat({strips})\n")
    adapters.respondent.memory = 64 << 20
    assert adapters.run_softmax(X, 0).shape == (12000,)


def test_threads_of_short_calls_are_limited(run: Run) -> None:
    adapters = run(trying("for _ in range(5): threading.Thread(target=time.sleep, args=(60,)).start()"), threads=8)
    adapters.run_softmax(X, 0)
    with pytest.raises(LimitExceeded, match="run_softmax: more than 8 threads"):
        adapters.run_softmax(X, 0)


def test_a_flood_of_output_costs_this_side_little(run: Run) -> None:
    """The worker waits until what it printed is read; reading all of it took half of a processor."""
    flood = "while time.monotonic() < end: written += os.write(1, bytes(1 << 16))"
    flood = f"written, end = 0, time.monotonic() + 1\n{flood}"
    assert run(trying(f"{flood}\nreturn written")).run_softmax(X, 0) < 200 << 20


def test_a_reply_in_many_pieces_costs_this_side_little(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    reads, read = [], Connection._read
    monkeypatch.setattr(Connection, "_read", lambda connection: (reads.append(1), read(connection)))
    serve = "whichline_grader.sandbox.inside.serve"
    in_bytes = "[os.write(channel, bytes([byte])) for byte in frame]"
    pieces = f"import {serve}\n{serve}.send = lambda channel, frame: {in_bytes}"
    assert run(trying(f"{pieces}\nreturn 'x' * 200_000")).run_softmax(X, 0) == "x" * 200_000
    assert len(reads) < 20_000


@pytest.mark.parametrize("reply", ["[[]] * 200_000", "torch.zeros(1_000_000, dtype=torch.uint8)"])
def test_large_replies_are_not_kept_without_end(run: Run, monkeypatch: pytest.MonkeyPatch, reply: str) -> None:
    """All are kept until the tests have run; a list of lists takes sixteen times its bytes."""
    monkeypatch.setattr(interview, "ANSWERS_BYTES", 1 << 20)
    adapters = run(trying(f"return {reply}"))
    adapters.run_softmax(X, 0)
    with suppress(LimitExceeded):
        adapters.run_softmax(X, 0)
    with pytest.raises(LimitExceeded, match="all answers together are larger than they can need to be"):
        adapters.run_softmax(X, 0)


FORGED = {
    "b'{x'": "a JSON header",
    "b'[' * 90000": "JSON header",
    "b'[]'": "a JSON object",
    "b'{\"token\": \"' + bytes([92]) + b'ud800\"}'": "does not have the token of its question",
}


@pytest.mark.parametrize("header", FORGED, ids=["no JSON", "nested", "list", "half a character"])
def test_forged_frames_end_the_worker(run: Run, header: str) -> None:
    """It writes a reply that has this header and no body, and waits."""
    forging = f"header = {header}\nos.write(3, struct.pack('<IQ', len(header), 0) + header)\ntime.sleep(60)"
    with pytest.raises(ProtocolViolation, match=FORGED[header]):
        run(trying(forging), call_seconds=1.0).run_softmax(X, 0)


def test_a_worker_that_dies_in_a_backward_pass(run: Run) -> None:
    function = "class F(torch.autograd.Function):\n    forward = staticmethod(lambda ctx, x: x * 2)\n"
    source = trying(f"{function}    backward = staticmethod(lambda ctx, g: os._exit(0))\nreturn F.apply(x)")
    y = run(source).run_softmax(torch.ones(2, requires_grad=True), 0)
    with pytest.raises(WorkerDied):
        y.sum().backward()


def test_nothing_is_left_behind(run: Run) -> None:
    adapters = run(trying("threading.Thread(target=time.sleep, args=(60,)).start()\nsignal.signal(15, signal.SIG_IGN)"))
    adapters.run_softmax(X, 0)
    interview = adapters.respondent.interview
    worker = psutil.Process(interview._connection.process.pid)
    interview.end_worker()
    worker.wait(60)  # the kernel tells of the end a moment before the process is gone


def test_descriptors_are_not_lost(run: Run) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(WorkerDied):
            run(trying("os._exit(1)")).run_softmax(X, 0)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.slow
def test_a_sandbox_that_ends_during_a_call_or_before_one_is_not_the_submissions_fault() -> None:
    with start("process") as sandbox:
        sleeper = Submission("x", {"adapters.py": trying("time.sleep(60)").encode()}, "adapters")
        adapters: Any = connect(sandbox, sleeper)
        threading.Timer(1, sandbox._process.kill).start()
        with pytest.raises(SandboxError, match="start it again"):
            adapters.run_softmax(X, 0)
    with pytest.raises(SandboxError, match="start it again"):
        sandbox.fork(1, 1 << 30)


@pytest.mark.slow
def test_a_killed_grader_leaves_nothing_behind(sandbox: Sandbox) -> None:
    command = [sys.executable, "-c", GRADER, sandbox.achieved.layer]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as grader:
        assert grader.stdout is not None
        zygote = int(grader.stdout.readline())
        while not (running := psutil.Process(zygote).children(recursive=True)):
            time.sleep(0.05)
        grader.kill()
    _, alive = psutil.wait_procs(running, timeout=30)
    assert not alive


def run_without_namespaces(*command: str) -> str:
    """Run it in a user namespace in which no other one can be made, and return what it says."""
    none = 'for kind in user mnt; do echo 0 > /proc/sys/user/max_${kind}_namespaces || exit; done; exec "$@"'
    inside = ["unshare", "--user", "--map-user=1000", "--keep-caps", "sh", "-c", none, "sh", sys.executable, *command]
    environment = {**os.environ, "COLUMNS": "500"}
    run = subprocess.run(inside, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    if "unshare failed" in run.stderr:
        pytest.skip(run.stderr)
    return run.stdout + run.stderr


@pytest.mark.nightly
def test_where_submissions_see_each_others_marks_one_run_grades_one(tmp_path: Path) -> None:
    both = [str(path) for path in write_files(tmp_path, {"ada.txt": "", "alan.txt": ""}).iterdir()]
    grade = ["-m", "whichline", "staff", "grade", "--out", str(tmp_path / "results")]
    refused, marks = "2 submissions would see marks", "a later submission can read which files an earlier one opened"
    for layer in ("auto", "process"):
        said = run_without_namespaces(*grade, *both, "--sandbox", layer)
        assert marks in said, said
        assert refused in said
        assert "points on average" not in said
    assert refused not in run_without_namespaces(*grade, both[0])


def test_a_missing_bubblewrap_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SandboxError, match="apt-get install bubblewrap"):
        sandboxes.start("bubblewrap")


def test_a_submission_draws_the_same_numbers_each_time(run: Run) -> None:
    """So the same is said of a random answer, or of what comes first in a set."""
    answers = []
    for _ in range(2):
        seed((0, 0, 0))  # as before each test
        answers.append(run(RANDOM).run_softmax(torch.zeros(1), 0))
    once, again = answers
    assert torch.equal(once, again)
    assert len(set(once.tolist())) == 5
    command, environment = (sys.executable, "-c", "print(hash('a') % 1000)"), os.environ | {"PYTHONHASHSEED": "0"}
    assert float(once[-1]) == int(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)


def test_processes_that_were_forked_share_a_sandbox(sandbox: Sandbox) -> None:
    """As the submissions of a batch do: each must get the worker that it asked for."""
    forks = []
    for number in range(4):
        if (pid := os.fork()) == 0:
            right = 0
            with suppress(BaseException):
                for turn in range(5):
                    source = f"def run_softmax(x, dim): return [{number}, {turn}, dim]".encode()
                    adapters: Any = connect(sandbox, Submission("x", {"adapters.py": source}, "adapters"))
                    right += adapters.run_softmax(X, 7) == [number, turn, 7]
                    adapters.respondent.interview.end_worker()
            os._exit(right)
        forks.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in forks] == [5] * 4
