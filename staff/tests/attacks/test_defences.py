"""Attacks that a plain run refuses aim at what only a grader of classes has. Here the defence that each meets is off.

Each test is named after its attack, and shows what happens to a grader without that defence.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from staff.tests import ROOT
from staff.tests.attacks.attack import HEAD, list_attacks, write_attack
from staff.tests.attacks.catalogue import feeder
from staff.tests.grading.test_gradebook import GRADING
from staff.tests.live import Live, connect
from whichline.engine.assignment import load_problems
from whichline_grader.grading.feedback import feedback, fence
from whichline_grader.grading.gradebook import Gradebook
from whichline_grader.grading.identity import make_safe_name
from whichline_grader.grading.report import Report
from whichline_grader.grading.reports import write_reports
from whichline_grader.sandbox import confinement as sandbox
from whichline_grader.sandbox import interview as client
from whichline_grader.sandbox import reply as replies
from whichline_grader.sandbox.files import Refused
from whichline_grader.sandbox.reply import LimitExceeded, ProtocolViolation
from whichline_grader.sandbox.submission import take_in

X = torch.ones(3)
Reply = Callable[..., tuple[Any, Live]]
IN_PARAMETERS = {"name_of_the_grades", "patch_worker"}
# The rest of what a plain run refuses: what happens without a defence is no work of ours, or nothing.
WITHOUT = {
    "bzip2_archive": "to read one byte, Python unpacks 32 MiB",
    "climbing_archive": "what unpacks it as unzip once did writes two folders above",
    "fake_report": "who looks for a score in what is printed finds 15",
    "linking_archive": "what unpacks it as unzip once did reads the grader's own adapters",
    "no_numbers": "who asks whether it is far off is told no: NaN is not",
    "own_tests": "pytest takes the tests that are handed in",
    "shadowed_libraries": "a Python that starts in its folder imports its modules",
    "blames_the_grader": "an exception's name would have to be taken for its class",
    "changes_its_input": "it is a wrong answer: a case keeps its inputs as they were before the call",
    "closed_descriptors": "it ends its own process and no other",
    "huge_reply": "it announces ten gigabytes and never sends them; the other side would wait for its time limit",
    "thirty_threads": "a grader that counts wall-clock time fails the submission beside it",
}

ATTACKS = list_attacks()
REFUSED = {attack.id for attack in ATTACKS if attack.plain == "refused"}
AT_FEEDER = REFUSED & {head[0] for head in HEAD.findall(feeder.ATTACKS)}  # which a plain run does not have
PAGES = {
    "README.md": ("The repository holds {all} attempts to cheat: {forged} get full marks",),
    "packages/grader/whichline_grader/docs/security.md": (
        "holds {all} small submissions",
        "{forged} get full marks for a wrong answer, {reached} reach what they were after, {flooded} flood, {hung} "
        "hang, {killed} end the grading process, and {refused} gain nothing",
        "For {shown} of those `test_defences.py` shows",
        "{feeder} (`feeder`) aim at questions that come one at a time",
    ),
}


def test_every_attack_that_a_plain_run_refuses_has_a_test_here_or_a_reason() -> None:
    assert REFUSED - {name.removeprefix("test_") for name in globals()} - IN_PARAMETERS - AT_FEEDER == WITHOUT.keys()


def test_the_pages_say_how_many_attacks_there_are() -> None:
    counts = {"all": len(ATTACKS), "feeder": len(AT_FEEDER), "shown": len(REFUSED - AT_FEEDER - WITHOUT.keys())}
    for page, sentences in PAGES.items():
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        for sentence in sentences:
            assert sentence.format(**counts, **Counter(attack.plain for attack in ATTACKS)) in text, page


def test_exploding_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_attack("exploding_archive", tmp_path)
    with pytest.raises(Refused):
        take_in(path)
    monkeypatch.setattr("whichline_grader.sandbox.files.MAX_SOURCE_BYTES", 1 << 30)
    assert sum(map(len, take_in(path).files.values())) > 1000 * path.stat().st_size / 2


@pytest.mark.parametrize("name", ["gradebook.sqlite", "grades.csv"])
def test_name_of_the_gradebook(tmp_path: Path, name: str) -> None:
    Gradebook(tmp_path / "gradebook.sqlite").close()
    (tmp_path / "grades.csv").touch()
    with pytest.raises(FileExistsError):
        write_reports(tmp_path / name, Report(GRADING, load_problems(ROOT)))
    write_reports(tmp_path / make_safe_name(name), Report(GRADING, load_problems(ROOT)))


def test_name_with_markup(tmp_path: Path) -> None:
    name = write_attack("name_with_markup", tmp_path).name
    assert "<script>" in feedback(Report(replace(GRADING, submission=name), {}))
    assert "<" not in feedback(Report(replace(GRADING, submission=make_safe_name(name)), {}))


def test_name_that_is_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = write_attack("name_that_is_no_text", tmp_path).name
    feedback(Report(replace(GRADING, submission=make_safe_name(name)), {})).encode()
    feedback(Report(replace(GRADING, submission=name), {})).encode()
    monkeypatch.setattr("whichline_grader.grading.feedback.printable", lambda text: text)
    with pytest.raises(UnicodeEncodeError):
        feedback(Report(replace(GRADING, submission=name), {})).encode()


def test_strange_text(tmp_path: Path) -> None:
    adapters: dict[str, Any] = {}
    exec(write_attack("strange_text", tmp_path).read_text(), adapters)  # noqa: S102 (it does no harm here)
    with pytest.raises(Exception, match="<script>") as caught:
        adapters["run_softmax"](X, 0)
    text = str(caught.value)
    with pytest.raises(UnicodeEncodeError):
        text.encode()
    assert "<script>" in re.sub(r"```.*?```", "", f"```text\n{text}\n```", flags=re.DOTALL)
    begin, *_, end = fence([text])
    assert end == begin.removesuffix("text") == "````"


@pytest.fixture(scope="module")
def unconfined() -> Iterator[sandbox.Sandbox]:
    with sandbox.start("none") as box:
        yield box


@pytest.fixture
def answer(unconfined: sandbox.Sandbox, tmp_path: Path) -> Reply:
    """What an attack answers without a sandbox, to the last of some calls, and who answered."""

    def answer(name: str, calls: int = 1) -> tuple[Any, Live]:
        adapters: Any = connect(unconfined, take_in(write_attack(name, tmp_path)))
        with adapters.respondent.interview:
            return [adapters.run_softmax(X, 0) for _ in range(calls)][-1], adapters.respondent

    return answer


@pytest.mark.slow
def test_large_replies(answer: Reply, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LimitExceeded, match="a reply with more bytes"):
        answer("large_replies")
    monkeypatch.setattr("whichline_grader.sandbox.connection.REPLY_BYTES", 64 << 20)
    assert answer("large_replies")[0].nbytes == 20 << 20


@pytest.mark.slow
@pytest.mark.parametrize(("name", "gets"), [("forged_reply", None), ("patch_worker", {"passed": True})])
def test_forged_reply(answer: Reply, monkeypatch: pytest.MonkeyPatch, name: str, gets: object) -> None:
    with pytest.raises(ProtocolViolation):
        answer(name)
    monkeypatch.setattr(client, "check", lambda raw, _, sent: replies.check(raw, json.loads(raw[0]).get("token"), sent))
    for _ in range(50):
        # Where the true reply is read together with the forged one, it is too long.
        with suppress(ProtocolViolation):
            assert answer(name)[0] == gets
            return
    pytest.fail("the forged reply never came alone")


@pytest.mark.slow
def test_flood_of_remarks(answer: Reply, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    for limit in (replies.MAX_NAME, 1 << 20):
        monkeypatch.setattr(replies, "MAX_NAME", limit)
        sizes.append(sum(map(len, answer("flood_of_remarks", calls=5)[1].missing)))
    assert sizes[0] < 100_000 < 1_500_000 < sizes[1]
