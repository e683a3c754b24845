"""Feed what reads hostile bytes with bytes that are nearly right: what a worker writes, zip and tar archives.

Each case is a real frame or archive in which a few things were changed: a field of the header, a length, some bytes. It
may only be read or refused with a documented error, within a second, and memory must not grow. The cases follow from
their numbers, so one that fails can be made again. (hypothesis would shrink it, at thirty times the cost of a case.)

What a pattern or a parser reads is also made of a few pieces, over and over: twice as many may take twice as long.
"""

import copy
import functools
import gzip
import io
import json
import math
import os
import random
import socket
import struct
import tarfile
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from jaxtyping import TypeCheckError

from whichline.engine.exception_report import ExceptionReport
from whichline.submission.archive import ArchiveError, check_names
from whichline.submission.submit import SubmissionError, _list_imports, read_submission, write_submission
from whichline_grader.grading.carried_forward import StandIn
from whichline_grader.grading.findings import find_means_to_hide
from whichline_grader.sandbox.connection import Connection, TooLongError
from whichline_grader.sandbox.files import Refused
from whichline_grader.sandbox.inside import frames
from whichline_grader.sandbox.remote_call import RemoteCall
from whichline_grader.sandbox.reply import check
from whichline_grader.sandbox.submission import Submission, take_in

SEED = 0  # from which all that is tried follows
SECONDS = 1.0  # of the processor, for one case
SLOW = 0.3  # of the processor, for a text that grows
GROWTH = 32 << 20  # bytes of resident memory, after the first tenth of the cases
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108  (a file on a disk takes longer than to read it)

SENT = [torch.ones(3, 2, requires_grad=True), torch.ones(4)]
TOKEN = "7"  # noqa: S105
GIVEN = (torch.rand(2, 3, 5), torch.rand(2, 4, 5), torch.rand(2, 4, 6), None)
ATTENTION = RemoteCall("run_scaled_dot_product_attention", GIVEN, recorded=GIVEN)
ODD: list[Any] = [
    *(None, True, False, -1, 0, 1, 2, 7, 8, 2**31, 2**63, -(2**63), 10**400, 0.5, 1e308, float("nan"), float("inf")),
    *("", "float32", "bool", "bfloat16", "complex64", "\ud800", "\x1b[2J", "x" * 5000),
    *([], {}, [[]], [0], [2**62, 2**62, 0], [1] * 20, [None] * 200, {"tensor": 0}, {"tensor": -1}, {"tensor": 0.0}),
    *({"dict": {}}, {"dict": {"a": {"tensor": 1}}}, {"dict": []}),
]
FILES = {"adapters.py": b"import torch\n", "cs336_basics/nn.py": b"x = 1\n" * 50, "notes.pdf": b"%PDF"}


def reply(rng: random.Random, folder: Path) -> str:
    """One reply of a worker, or several, read piece by piece as they come through its socket."""
    data = b"".join(_reply(rng) for _ in range(rng.choice((1, 1, 1, 2))))
    if rng.random() < 0.3:
        data = _changed(rng, data)
    size = max(13, len(data) // rng.choice((1, 3, 20)))
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs, open(os.devnull, "rb") as silent:
        worker: Any = SimpleNamespace(channel=ours, stdout=silent.fileno(), stderr=silent.fileno())
        connection = Connection(worker, 1 << 20, {"stdout": 0, "stderr": 0})
        connection.send(b"?" * 100)
        try:
            while data and not connection.reply:
                theirs.sendall(data[:size])
                data = data[size:]
                connection.exchange(0)
            if not connection.reply:
                return "waits"
            answer = check(connection.reply, TOKEN, SENT)
        except (frames.FrameError, TooLongError):
            return "refused"
    assert answer.decoded is not answer  # it cannot fail once it was checked
    return "read"


def request(rng: random.Random, folder: Path) -> str:
    """What a worker asks of earlier problems while it attends to scores (2, 3, 4): it gets no more numbers than these.

    Of what it got it may ask for the gradients, each time anew.
    """
    lender = StandIn([(RemoteCall("run_softmax", (torch.rand(2, 3), 1)), ("in_features", "dim"))])
    lender.begin(ATTENTION, TOKEN)
    given, outcome, start = 0, "nothing is lent", frames.PREFIX.size
    for number in range(3):
        asked = {"token": TOKEN, "borrow": "run_softmax", "arguments": {"in_features": {"tensor": 0}, "dim": -1}}
        tensor = torch.ones(rng.choice(((2, 3, 4), (3, 4), (1, 4), (24, 4), (2, 3, 5))))
        if number and rng.random() < 0.5:
            asked = {"token": TOKEN, "borrow": number - 1, "cotangents": [{"tensor": 0}]}
        asked["tensors"] = [frames._describe_tensor(tensor.requires_grad_(rng.random() < 0.5))]
        text = json.dumps(_mutated(rng, asked)).encode()
        try:
            carried = lender.reply((text, frames.elements(tensor.detach())), TOKEN)
        except frames.FrameError:
            return "refused"
        header = json.loads(carried[start : start + frames.PREFIX.unpack_from(carried)[0]]) if carried else {}
        if "value" in header:
            given += sum(math.prod(each["shape"]) for each in header["tensors"])
            outcome = "read"
    assert given <= 24
    return outcome


def zip_archive(rng: random.Random, folder: Path) -> str:
    """A zip archive, read as a class is graded and as `cs336 submit --check` reads it."""
    path = folder / "handed-in.zip"
    path.write_bytes(_changed(rng, rng.choice(_zips())))
    with suppress(ArchiveError):
        read_submission(path)
    return _taken_in(path)


def tar_archive(rng: random.Random, folder: Path) -> str:
    """A tar archive: its bytes changed, or those that it is compressed to."""
    data = _changed(rng, rng.choice(_tars()))
    path = folder / "handed-in.tar"
    if rng.random() < 0.5:
        path, data = folder / "handed-in.tar.gz", gzip.compress(data, 1)
        data = _changed(rng, data) if rng.random() < 0.3 else data
    path.write_bytes(data)
    return _taken_in(path)


def _time(read: Callable[[str, Path], object], text: str, folder: Path) -> float:
    started = time.process_time()
    read(text, folder)
    return time.process_time() - started


def source(text: str, folder: Path) -> None:
    """Source code, in adapters that are parsed and in a file beside them."""
    for name in ("adapters.py", "tests/adapters.py", "model.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8", errors="replace")
    with suppress(Refused):
        taken = take_in(folder)
        _ = taken.sha256, taken.slow_imports, taken.line("adapters.py", 1)
    with suppress(SubmissionError):
        list(_list_imports("model.py", text.encode(errors="replace")))


def message(text: str, folder: Path) -> None:
    for kind in (RuntimeError, TypeError, ImportError, NameError, SyntaxError, TypeCheckError):
        report = ExceptionReport(kind(text), folder)
        _ = report.sentences, report.full


def means_to_hide(text: str, folder: Path) -> None:
    """A file in which lines are looked for that could hide what they call."""
    find_means_to_hide(Submission("test", {"ü" * 240: text.encode(errors="replace")}, "adapters"))


def names(text: str, folder: Path) -> None:
    """A name in an archive, and many of them."""
    for each in ([text], [f"{number}.py" for number in range(len(text) // 64)]):
        with suppress(ArchiveError):
            check_names(each)


PHRASES = (
    "\\\n|if x:\n |else:\n|.a import a\n|import cs336_basics.a.adapters\n|def run_softmax(): return 1\n|\nfunc as |"
    ".a|.b()|gc\n|'''|not |a=|f(|lambda:|f'{|from |import |from cs336_basics|torch.|func |checkpoint|"
    "Expected type: |Actual value: |Tensor[Tensor, '|f() takes |f() missing 1 required |f() got an | is |"
    "batch2 tensor to be: [|tensor a (1) must match |size mismatch for a: torch.Size(|Missing key(s) in |"
    "Error(s) in loading state_dict for A:|shape '|the answer has shape |the a is | of the weights are "
)
PIECES = [*"\n\r \t\f\0a1é_#'\"-@,([{", *PHRASES.split("|")]


def _reply(rng: random.Random) -> bytes:
    """Build what `serve` answers, with some fields of its header changed."""
    tensors = [torch.ones(3, 2), torch.zeros(4, dtype=rng.choice(list(frames.DTYPES.values())))]
    header: dict[str, Any] = {"token": TOKEN, "missing": ["wandb"], "forbidden": [["torch.softmax", "adapters.py", 3]]}
    header |= rng.choice(
        (
            {"value": [{"tensor": 0}, {"dict": {"a": {"tensor": 1}}}], "outputs": 2, "changed": [None, {"tensor": 1}]},
            {"gradients": [{"tensor": 0}]},
            {"error": {"type": "ValueError", "message": "no", "lines": [["adapters.py", 3, "run_softmax"]]}},
        )
    )
    header["tensors"] = [frames._describe_tensor(tensor) for tensor in tensors]
    text = json.dumps(_mutated(rng, header)).encode()
    if rng.random() < 0.05:
        depth = rng.choice((9, 1000, 10_000))
        text = text[:-1] + b', "value": ' + b"[" * depth + b"]" * depth + b"}"
    if rng.random() < 0.05:
        text = text[:-1] + b', "outputs": 1' + b"0" * 5000 + b"}"
    body = b"".join(frames.elements(tensor) for tensor in tensors)
    return frames.PREFIX.pack(len(text), len(body)) + text + body


def _mutated(rng: random.Random, header: dict[str, Any]) -> dict[str, Any]:
    for _ in range(rng.choice((0, 1, 1, 1, 2, 4))):
        places = list(_places(header))
        container, key = rng.choice(places)
        match rng.randrange(4):
            case 0:
                del container[key]
            case 1:
                other, its = rng.choice(places)
                container[key] = copy.deepcopy(other[its])
            case _:
                container[key] = copy.deepcopy(rng.choice(ODD))  # which later changes must not change
    return header


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each place in a JSON value, as a container and a key."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


NUMBERS = [struct.pack(f"<{kind}", number) for kind in "HI" for number in (0, 1, 8, 12, 14, 0x7FFF, 0xFFFF)]
NUMBERS += [struct.pack("<I", 0x7FFFFFFF), b"\xff" * 4, b"\xff" * 8, b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"]


def _changed(rng: random.Random, data: bytes) -> bytes:
    """`data` with a few bytes flipped, numbers written over, pieces left out, repeated or taken from elsewhere."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        at = rng.randrange(len(changed) + 1)
        length = rng.choice((1, 2, 16, 512))
        match rng.randrange(6):
            case 0 | 1:
                changed[at : at + 1] = rng.randbytes(1)
            case 2:
                number = rng.choice(NUMBERS)
                changed[at : at + len(number)] = number
            case 3:
                del changed[at : at + length]
            case 4:
                changed[at:at] = changed[at : at + length] * rng.choice((1, 2, 50))
            case 5:
                other = rng.randrange(len(changed) + 1)
                changed[at : at + length] = changed[other : other + length]
    return bytes(changed[: rng.randrange(len(changed) + 1)] if rng.random() < 0.05 else changed)


@functools.cache
def _zips() -> list[bytes]:
    """Archives as `cs336 submit` writes them, and as other programs do."""
    made = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "submission.zip"
        write_submission(path, FILES, [])
        made.append(path.read_bytes())
    for compression in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with zipfile.ZipFile(file := io.BytesIO(), "w", compression) as archive:
            for name, content in FILES.items():
                archive.writestr(f"around/{name}", content)
        made.append(file.getvalue())
    return made


@functools.cache
def _tars() -> list[bytes]:
    made = []
    for kind in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        with tarfile.open(fileobj=(file := io.BytesIO()), mode="w", format=kind) as archive:
            for name, content in FILES.items():
                # A long name and a fraction of a second get headers of their own.
                entry = tarfile.TarInfo(f"{'x' * 120}/{name}")
                entry.size, entry.mtime = len(content), 1.5  # pyright: ignore[reportAttributeAccessIssue]
                archive.addfile(entry, io.BytesIO(content))
        made.append(file.getvalue())
    return made


def _taken_in(path: Path) -> str:
    said = ""
    try:
        take_in(path)
    except Refused as refused:
        said = str(refused)
    assert said.isprintable(), f"what is said could command a terminal: {said!r}"
    return "refused" if said else "read"


@pytest.mark.nightly
@pytest.mark.parametrize("target", [reply, request, zip_archive, tar_archive])
def test_what_is_nearly_right_is_read_or_refused(target: Callable[[random.Random, Path], str]) -> None:
    outcomes: Counter[str] = Counter()
    before, cases = 0, 3_400
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        for number in range(cases):
            if number == cases // 10:
                before = psutil.Process().memory_info().rss
            started = time.process_time()
            try:
                outcome = target(random.Random(f"{SEED} {number}"), Path(folder))  # noqa: S311  (no secret)
            except Exception as error:
                raise AssertionError(f"case {number} ends in {type(error).__name__}") from error
            outcomes[outcome] += 1
            seconds = time.process_time() - started
            assert seconds < SECONDS, f"case {number} takes {seconds:.1f} s"
    grown = psutil.Process().memory_info().rss - before
    assert grown < GROWTH, f"{cases} cases leave {grown >> 20} MiB behind"
    assert min(outcomes["read"], outcomes["refused"]) > 100


@pytest.mark.nightly
@pytest.mark.parametrize("read", [source, message, means_to_hide, names])
def test_what_is_twice_as_long_takes_no_more_than_twice_as_long(read: Callable[[str, Path], object]) -> None:
    """Texts that repeat one of `PIECES` grow from 1 KiB to 1 MiB, or until that is slow."""
    slowest = 0.0
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        for number, piece in enumerate(PIECES):
            rng = random.Random(f"{SEED} {number}")  # noqa: S311  (no secret)
            start, end = rng.choice(("", *PIECES)), rng.choice(PIECES)
            before = 0.0
            for size in (4**power << 10 for power in range(6)):
                text = start + piece * (size // len(piece)) + end
                seconds = _time(read, text, Path(folder))
                if seconds > max(SLOW, 8 * before):  # by chance? a busy machine takes longer, and never less long
                    seconds = min(seconds, *(_time(read, text, Path(folder)) for _ in range(2)))
                slowest = max(slowest, seconds)
                if seconds > SLOW:
                    much = f"{before:.3f} s for {size // 4} characters and {seconds:.3f} s for {size}"
                    assert seconds < 8 * before, f"texts of {piece!r}: {much}"
                    break
                before = seconds
    assert slowest < 5
