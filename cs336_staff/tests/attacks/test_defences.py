"""Attacks that a plain run refuses aim at what only a grader of classes has. Here the defence that each meets is off.

Each test is named after its attack, and shows what happens to a grader without that defence.
"""

import os
import re
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cs336_kit.engine.assignment import load_problems
from cs336_staff.grading import blocks
from cs336_staff.grading.blocks import fence_lines
from cs336_staff.grading.feedback import feedback, write_reports
from cs336_staff.grading.gradebook import Gradebook
from cs336_staff.grading.identity import safe_name
from cs336_staff.sandbox import channel, replies, submission
from cs336_staff.sandbox import confinement as sandbox
from cs336_staff.sandbox import worker as client
from cs336_staff.sandbox.proxy import Adapters
from cs336_staff.sandbox.submission import Refused, take_in
from cs336_staff.sandbox.worker import LimitExceeded, ProtocolViolation, Worker
from cs336_staff.tests.attacks import made
from cs336_staff.tests.attacks.attack import ROOT, SUBMISSIONS, find_attacks
from cs336_staff.tests.grading.test_gradebook import GRADING

X = torch.ones(3)
IN_PARAMETERS = {"name_of_the_grades", "patch_worker"}
# The rest of what a plain run refuses: nothing is gained or broken even with the defence off.
WITHOUT = {
    "blames_the_grader": "an exception's name would have to be taken for its class",
    "changes_its_input": "it is a wrong answer: a case keeps its inputs as they were before the call",
    "closed_descriptors": "it ends its own process and no other",
    "huge_reply": "it announces ten gigabytes and never sends them; the other side would wait for its time limit",
    "thirty_threads": "a grader that counts wall-clock time fails the submission beside it",
}


def test_every_attack_that_a_plain_run_refuses_has_a_test_here_or_a_reason(tmp_path: Path) -> None:
    refused = {attack.path.stem.split(".")[0] for attack in find_attacks(tmp_path) if attack.plain == "refused"}
    markup = {name for name in refused if "<script>" in name}
    shown = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    named = {
        "gradebook": "name_of_the_gradebook",
        "grades": "name_of_the_grades",
        "no_text_\udcff": "name_that_is_no_text",
    }
    names = {named.get(name, name) for name in refused - markup} | {"name_with_markup" for _ in markup}
    assert names - shown - IN_PARAMETERS == WITHOUT.keys()
    assert all(name in (ROOT / "cs336_staff/docs/security.md").read_text() for name in WITHOUT)


def unpack(archive: Path, folder: Path) -> None:
    """As `unzip` did for years: every entry is what it says and goes where it says."""
    with zipfile.ZipFile(archive) as file:
        for info in file.infolist():
            path = Path(os.path.normpath(folder / info.filename))
            if info.external_attr >> 28 == 0o12:
                path.symlink_to(file.read(info).decode())
            else:
                path.write_bytes(file.read(info))


def test_climbing_archive(tmp_path: Path) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    unpack(made.climbing_archive(tmp_path, ROOT), inside)
    assert (tmp_path / "cs336-attack.py").exists()


def test_linking_archive(tmp_path: Path) -> None:
    (tmp_path / "unpacked").mkdir()
    unpack(made.linking_archive(tmp_path, ROOT), tmp_path / "unpacked")
    assert (tmp_path / "unpacked" / "adapters.py").read_text() == (ROOT / "adapters.py").read_text()


def test_exploding_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made.exploding_archive(tmp_path, ROOT)
    with pytest.raises(Refused):
        take_in(path)
    monkeypatch.setattr(submission, "MAX_SOURCE_BYTES", 1 << 30)
    assert sum(map(len, take_in(path).files.values())) > 1000 * path.stat().st_size / 2


def test_bzip2_archive(tmp_path: Path) -> None:
    path = made.bzip2_archive(tmp_path, ROOT)
    assert path.stat().st_size < 1000
    tracemalloc.start()
    with zipfile.ZipFile(path) as file, file.open("model.py") as opened:
        opened.read(1)
    assert tracemalloc.get_traced_memory()[1] > 32 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("name", ["gradebook.sqlite", "grades.csv"])
def test_name_of_the_gradebook(tmp_path: Path, name: str) -> None:
    Gradebook(tmp_path / "gradebook.sqlite").close()
    (tmp_path / "grades.csv").touch()
    with pytest.raises(FileExistsError):
        write_reports(tmp_path / name, GRADING, load_problems(ROOT))
    write_reports(tmp_path / safe_name(name), GRADING, load_problems(ROOT))


def test_name_with_markup(tmp_path: Path) -> None:
    name = made.name_with_markup(tmp_path, ROOT).name
    assert "<script>" in feedback(replace(GRADING, submission=name), {})
    assert "<" not in feedback(replace(GRADING, submission=safe_name(name)), {})


def test_name_that_is_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = made.name_that_is_no_text(tmp_path, ROOT).name
    feedback(replace(GRADING, submission=safe_name(name)), {}).encode()
    feedback(replace(GRADING, submission=name), {}).encode()
    monkeypatch.setattr(blocks, "printable", lambda text: text)
    with pytest.raises(UnicodeEncodeError):
        feedback(replace(GRADING, submission=name), {}).encode()


def softmax_of(attack: str) -> Callable[[torch.Tensor, int], torch.Tensor]:
    """The function of an attack that does no harm where it is called: it raises, prints or computes."""
    adapters = {}
    exec((SUBMISSIONS / attack).read_text(), adapters)  # noqa: S102
    return adapters["run_softmax"]


def test_strange_text() -> None:
    with pytest.raises(Exception, match="<script>") as caught:
        softmax_of("channel/strange_text.py")(X, 0)
    text = str(caught.value)
    with pytest.raises(UnicodeEncodeError):
        text.encode()
    naive = ["```text", text, "```"]
    assert "<script>" in re.sub(r"```.*?```", "", "\n".join(naive), flags=re.DOTALL)
    fence, *_, end = fence_lines([text])
    assert end == fence.removesuffix("text") == "````"


def test_fake_report(capsys: pytest.CaptureFixture[str]) -> None:
    softmax_of("channel/fake_report.py")(X, 0)
    found = re.search(r"::set-output name=score::(\d+)", capsys.readouterr().out)
    assert found
    assert found[1] == "15"


def test_no_numbers() -> None:
    softmax = softmax_of("answers/no_numbers.py")
    answers = [softmax(X, 0) for _ in range(2)]
    expected = torch.full((3,), 1 / 3)
    assert not ((answers[1] - expected).abs() > 1e-6).any()  # as if nothing were wrong with it


@pytest.mark.slow
def test_own_tests(tmp_path: Path) -> None:
    folder = made.own_tests(tmp_path, ROOT)
    command = [sys.executable, "-m", "pytest", "-q", "--disable-plugin-autoload", "tests"]
    assert subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0


def test_shadowed_libraries(tmp_path: Path) -> None:
    folder = made.shadowed_libraries(tmp_path, ROOT)
    command = [sys.executable, "-S", "-c", "import struct"]
    finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert "ImportError: shadowed" in finished.stderr


@pytest.mark.slow
def test_large_replies(unconfined: sandbox.Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    adapters, worker = adapters_of(unconfined, "resources/large_replies.py")
    with worker, pytest.raises(LimitExceeded, match="a reply with more bytes"):
        adapters.run_softmax(X, 0)
    monkeypatch.setattr(channel, "REPLY_BYTES", 64 << 20)
    adapters, worker = adapters_of(unconfined, "resources/large_replies.py")
    with worker:
        assert adapters.run_softmax(X, 0).nbytes == 20 << 20


@pytest.fixture(scope="module")
def unconfined() -> Iterator[sandbox.Sandbox]:
    with sandbox.start("none") as box:
        yield box


def adapters_of(box: sandbox.Sandbox, name: str) -> tuple[Adapters, Worker]:
    adapters = Adapters(ROOT / "adapters.py")
    adapters.worker = worker = Worker(box, take_in(SUBMISSIONS / name))
    return adapters, worker


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "gets"), [("channel/forged_reply.py", None), ("patching/patch_worker.py", {"passed": True})]
)
def test_forged_reply(unconfined: sandbox.Sandbox, monkeypatch: pytest.MonkeyPatch, name: str, gets: object) -> None:
    adapters, worker = adapters_of(unconfined, name)
    with worker, pytest.raises(ProtocolViolation):
        adapters.run_softmax(X, 0)
    check = replies.check
    monkeypatch.setattr(
        client, "check", lambda head, body, request, sent: check({**head, **request}, body, request, sent)
    )
    for _ in range(50):
        adapters, worker = adapters_of(unconfined, name)
        # Where the true reply is read together with the forged one, it is too long.
        with worker, suppress(ProtocolViolation):
            assert adapters.run_softmax(X, 0) == gets
            return
    pytest.fail("the forged reply never came alone")


@pytest.mark.slow
def test_flood_of_remarks(unconfined: sandbox.Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    for limit in (replies.MAX_NAME, 1 << 20):
        monkeypatch.setattr(replies, "MAX_NAME", limit)
        monkeypatch.setattr(client, "MAX_ITEMS", limit)
        adapters, worker = adapters_of(unconfined, "resources/flood_of_remarks.py")
        with worker:
            for _ in range(5):
                adapters.run_softmax(X, 0)
        sizes.append(sum(map(len, worker.missing)))
    assert sizes[0] < 100_000 < 1_500_000 < sizes[1]
