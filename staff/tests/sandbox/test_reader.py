"""A submission is taken in by a process of its own; one that ends it leaves the next one alone."""

import ctypes
import faulthandler
import multiprocessing
import os
import re
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from staff.tests import ROOT
from staff.tests.files import write_files
from whichline_grader.sandbox import reader
from whichline_grader.sandbox.files import MIB, Refused
from whichline_grader.sandbox.reader import Reader
from whichline_grader.sandbox.submission import Submission, take_in

ENDED = "the process that read it ended with exit status"


@contextmanager
def answering(memory: int = reader.MEMORY_BYTES) -> Iterator[Connection]:
    """Whoever answers a `Reader`, as a fork of this process, with all that a test has changed.

    The fork may take so much memory beside what other tests have left in this process.
    """
    ours, theirs = Pipe()
    mapped = int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")

    def answer() -> None:
        ours.close()
        reader.MEMORY_BYTES = mapped + memory
        reader.main(theirs)

    process = multiprocessing.get_context("fork").Process(target=answer)
    process.start()
    theirs.close()
    with ours:
        yield ours
    process.join()


def asked(pipe: Connection, path: Path) -> object:
    try:
        return reader.ask(pipe, path)
    except (Refused, OSError) as error:
        return error


def test_it_is_what_would_be_taken_in_here_with_all_that_is_computed_from_it(tmp_path: Path) -> None:
    (tmp_path / "adapters.py").write_text("import einx\n")
    with Reader() as apart:
        taken = apart.take_in(tmp_path)
        both = apart.take_in(tmp_path, {"adapters.py": tmp_path / "adapters.py"})
    assert taken == both == take_in(tmp_path)
    assert (taken.sha256, vars(taken)["slow_imports"]) == (take_in(tmp_path).sha256, ["einx"])


def test_a_name_that_is_no_text_is_read(tmp_path: Path) -> None:
    source = "def run_softmax(in_features, dim):\n    return in_features\n"
    folder = write_files(tmp_path / os.fsdecode(b"no_text_\xff"), {"adapters.py": source})
    with Reader() as apart:
        assert apart.take_in(folder).name == folder.name


def test_links_to_the_work_of_another_and_what_never_ends_are_refused(tmp_path: Path) -> None:
    """As git and some archives keep them; the standard input of this command stays silent and open."""
    with zipfile.ZipFile(tmp_path / "bob.zip", "w") as archive:
        archive.writestr("adapters.py", "")
    for name, target in (("alice", "../bob.zip"), ("carl", "/dev/stdin"), ("dora", "/dev/zero")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "work.zip").symlink_to(target)
    os.mkfifo(tmp_path / "pipe.zip")
    script = """if True:
        import sys
        from pathlib import Path
        from whichline_grader.sandbox.reader import Reader
        from whichline_grader.sandbox.submission import Refused
        with Reader() as reader:
            for path in map(Path, sys.argv[1:]):
                try:
                    print(path.name, sorted(reader.take_in(path).files))
                except Refused as refused:
                    print(path.name, refused)
    """
    names = ("alice", "carl", "dora", "pipe.zip", "bob.zip")
    command = [sys.executable, "-c", script, *(str(tmp_path / name) for name in names)]
    silent, writer = os.pipe()
    finished = subprocess.run(command, cwd=ROOT, stdin=silent, capture_output=True, text=True, timeout=60, check=True)
    os.close(silent)
    os.close(writer)
    said = finished.stdout.splitlines()
    link = "expected an archive, but 'work.zip' is a link or a device; put your code into adapters.py"
    assert [line.partition(" and ")[0] for line in said[:3]] == [f"{name} {link}" for name in names[:3]]
    pipe = "expected a Python file, a folder or a zip archive, got a device, pipe or socket"
    assert said[3].startswith(f"pipe.zip {pipe}")
    assert said[4] == "bob.zip ['adapters.py']"


@pytest.mark.parametrize(
    ("do", "said"),
    [
        (lambda path: path.with_name("b.py").read_bytes(), "[Errno 13] Permission denied: "),
        (lambda _: Path("/etc/hostname").read_bytes(), "[Errno 13] Permission denied: '/etc/hostname'"),
        (lambda _: socket.socket(), "[Errno 1] Operation not permitted"),
        (lambda _: Path("/dev/null").write_text(""), "[Errno 1] Operation not permitted: '/dev/null'"),
        (lambda _: os.fork(), "[Errno 1] Operation not permitted"),
        (lambda _: os.kill(os.getppid(), 9), "[Errno 1] Operation not permitted"),
    ],
    ids=["a neighbour", "a file", "a socket", "a write", "a fork", "a signal"],
)
def test_what_reads_a_submission_sees_that_and_the_assignment_alone(
    do: Callable[[Path], object], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path, {"a.py": "", "b.py": "of another student"})
    monkeypatch.setattr(reader, "take_in", lambda path, files: do(path))
    with answering() as pipe:
        assert str(asked(pipe, tmp_path / "a.py")).startswith(said)


@pytest.mark.parametrize("said", [b"", b"{", b'{"taken": {"files": []}}', b"[" * 100_000])
def test_what_reads_a_submission_is_not_believed(said: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_read", lambda *_: said)
    with answering() as pipe:
        error = asked(pipe, tmp_path)
    assert isinstance(error, OSError)
    assert str(error).startswith("the process that reads submissions gave no answer that can be read")


def test_what_is_refused_is_known_again_until_it_changes(tmp_path: Path) -> None:
    (write_files(tmp_path, {"a.pdf": "", "b.py": ""}) / "empty").mkdir()

    def content(path: Path, files: Mapping[str, Path] | None = None) -> str:
        with pytest.raises(Refused) as refused:
            apart.take_in(path, files)
        return refused.value.content

    with Reader() as apart:
        for path, files in ((tmp_path, None), (tmp_path / "a.pdf", None), (tmp_path, {"b.py": tmp_path / "b.py"})):
            before = [content(path, files), content(path, files)]
            (tmp_path / "a.pdf").write_bytes((tmp_path / "a.pdf").read_bytes() + b"%")
            (tmp_path / "b.py").write_text((tmp_path / "b.py").read_text() + "#")
            assert len({*before, content(path, files)}) == 2


@pytest.mark.parametrize(
    ("do", "kind", "said"),
    [
        (lambda: (faulthandler.disable(), ctypes.string_at(0)), OSError, f"{ENDED} -11$"),
        (lambda: os._exit(7), OSError, f"{ENDED} 7$"),
        (lambda: 1 / 0, OSError, "ZeroDivisionError: division by zero$"),
        (lambda: os.stat("/nowhere"), OSError, r"\[Errno 2\] No such file or directory: '/nowhere'$"),
        (lambda: time.sleep(600), OSError, r"it was not read within 0\.5 s on the clock$"),
        (lambda: bytes(1 << 30), Refused, r"it took more than \d+ MiB of memory to read; put your code into"),
    ],
    ids=["a fault", "an exit", "an error", "a file that is missing", "no end", "memory"],
)
def test_what_ends_the_process_or_is_ended_holds_up_nobody(
    do: Callable[[], object], kind: type[Exception], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path, files: object) -> Submission:
        if path.name == "hostile.py":
            do()
        return take_in(path)

    monkeypatch.setattr(reader, "take_in", read)
    monkeypatch.setattr(reader, "CLOCK_SECONDS", 0.5)
    write_files(tmp_path, {"hostile.py": "", "honest.py": ""})
    with answering(100 * MIB) as pipe:
        error = asked(pipe, tmp_path / "hostile.py")
        monkeypatch.setattr(reader, "CLOCK_SECONDS", 60)
        assert isinstance(asked(pipe, tmp_path / "honest.py"), Submission)
    assert isinstance(error, kind)
    assert re.match(said, str(error))
    assert not isinstance(error, Refused) or error.content


def test_the_end_of_the_process_that_forks_is_an_error(tmp_path: Path) -> None:
    with Reader() as apart:
        apart._process.kill()
        apart._process.wait()
        with pytest.raises(OSError, match=r"has ended; run the same command|Broken pipe|reset by peer"):
            apart.take_in(tmp_path)
