"""A submission is taken in by a process of its own; one that ends it leaves the next one alone."""

import multiprocessing
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from whichline_grader.sandbox import reader
from whichline_grader.sandbox.reader import Reader
from whichline_grader.sandbox.submission import MIB, Refused, Submission, take_in


@contextmanager
def answering() -> Iterator[Connection]:
    """Whoever answers a `Reader`, as a fork of this process, with all that a test has changed."""
    ours, theirs = Pipe()

    def answer() -> None:
        ours.close()
        reader.main(theirs)

    process = multiprocessing.get_context("fork").Process(target=answer)
    process.start()
    theirs.close()
    with ours:
        yield ours
    process.join()


def asked(pipe: Connection, path: Path) -> object:
    pipe.send((path, None))
    return pipe.recv()


def test_it_is_what_would_be_taken_in_here_with_all_that_is_computed_from_it(tmp_path: Path) -> None:
    (tmp_path / "adapters.py").write_text("import einx\n")
    with Reader() as apart:
        taken = apart.take_in(tmp_path)
        both = apart.take_in(tmp_path, {"adapters.py": tmp_path / "adapters.py"})
    assert taken == both == take_in(tmp_path)
    assert vars(taken)["sha256"] == take_in(tmp_path).sha256
    assert vars(taken)["slow_imports"] == ["einx"]


def test_what_is_refused_is_known_again_until_it_changes(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.pdf").touch()
    (tmp_path / "b.py").touch()

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


def test_what_takes_too_much_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    monkeypatch.setattr(reader, "MEMORY_BYTES", mapped + 100 * MIB)
    monkeypatch.setattr(
        reader, "take_in", lambda path, files: bytes(1 << 30) if path.stem == "hostile" else take_in(path)
    )
    for name in ("hostile.py", "honest.py"):
        (tmp_path / name).touch()
    with answering() as pipe:
        refused = asked(pipe, tmp_path / "hostile.py")
        assert isinstance(asked(pipe, tmp_path / "honest.py"), Submission)
    assert isinstance(refused, Refused)
    assert re.match(r"it took more than \d+ MiB of memory to read; put your code into adapters.py", str(refused))
    assert refused.content


@pytest.mark.parametrize(
    ("do", "said"),
    [
        (lambda: os.kill(os.getpid(), 9), "the process that read it ended with exit status -9"),
        (lambda: os._exit(7), "the process that read it ended with exit status 7"),
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda: os.stat("/nowhere"), "[Errno 2] No such file or directory: '/nowhere'"),
    ],
)
def test_what_ends_the_process_ends_no_other(
    do: Callable[[], object], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path, files: object) -> Submission:
        if path.name == "hostile.py":
            do()
        return take_in(path)

    monkeypatch.setattr(reader, "take_in", read)
    (tmp_path / "honest.py").touch()
    with answering() as pipe:
        error = asked(pipe, tmp_path / "hostile.py")
        assert isinstance(asked(pipe, tmp_path / "honest.py"), Submission)
    assert isinstance(error, OSError)
    assert str(error) == said


def test_the_end_of_the_process_that_forks_is_an_error(tmp_path: Path) -> None:
    with Reader() as apart:
        apart._process.kill()
        apart._process.wait()
        with pytest.raises(OSError, match=r"has ended; run the same command|Broken pipe|reset by peer"):
            apart.take_in(tmp_path)
