"""Questions go out one at a time, and an answer is that to its own question or none."""

from typing import Any

import pytest
import torch

from whichline_grader.grading.transcripts import Replies, ask
from whichline_grader.sandbox.confinement import Sandbox
from whichline_grader.sandbox.interview import Interview
from whichline_grader.sandbox.limits import Limits
from whichline_grader.sandbox.remote_call import Earlier, RemoteCall
from whichline_grader.sandbox.reply import NotAsked, ProtocolViolation, WorkerDied
from whichline_grader.sandbox.submission import Submission

LAYERS = ("bubblewrap",)
X = torch.ones(1)
COUNTING = """
import os, select, sys, threading, time
calls, me = 0, os.urandom(4).hex()
def run_softmax(x, dim):
    global calls
    calls += 1
    {body}
    return [calls, me, dim]
"""


def softmax(dim: object, x: Any = X, **more: Any) -> RemoteCall:
    return RemoteCall("run_softmax", (x, dim), **more)


def ask_all(sandbox: Sandbox, body: str, *tests: list[RemoteCall]) -> Replies:
    """The answers of a submission that counts its calls to some questions."""
    submission = Submission("x", {"adapters.py": COUNTING.format(body=body).encode()}, "adapters")
    with Interview(sandbox, submission) as interview:
        return ask(interview, {f"test {number}": test for number, test in enumerate(tests)})


def test_nothing_of_a_later_question_is_there(sandbox: Sandbox) -> None:
    waiting = "time.sleep(0.1)\n    dim = select.select([3], [], [], 0)[0]"
    found = ask_all(sandbox, waiting, [softmax(dim) for dim in range(5)])["test 0"]
    assert [answer.decoded[2] for answer in found] == [[]] * 5


def test_what_comes_again_is_asked_later_in_another_process_and_twice_there(sandbox: Sandbox) -> None:
    found = ask_all(sandbox, "pass", [softmax(0), softmax(1), softmax(0)], [softmax(0)])
    first, other, again = (answer.decoded for answer in found["test 0"])
    assert (first[0], other[0], again[0]) == (1, 2, 2)
    assert first[1] == other[1] == found["test 1"][0].decoded[1] != again[1]


@pytest.mark.parametrize("other", [torch.zeros(1), -torch.zeros(1), torch.ones(1, 1), torch.ones(1).double()])
def test_only_the_very_same_comes_again(other: torch.Tensor) -> None:
    question = softmax(0)
    assert question.is_same(softmax(0, torch.ones(1)))
    assert not question.is_same(softmax(0, other))
    assert not question.is_same(softmax(False))
    assert not question.is_same(softmax(0, torch.ones(1, requires_grad=True)))
    assert not softmax(0, torch.zeros(1)).is_asked_by(softmax(0, -torch.zeros(1)), [])


def test_what_kills_the_worker_is_an_answer_and_a_fresh_one_goes_on(sandbox: Sandbox) -> None:
    found = ask_all(sandbox, "os._exit(1) if dim == 2 else None", [softmax(dim) for dim in range(4)])["test 0"]
    assert isinstance(found[2].stopped, WorkerDied)
    assert not isinstance(found[2].stopped, Exception)
    assert [answer.decoded[0] for answer in (found[0], found[1], found[3])] == [1, 2, 1]


def test_what_a_later_import_says_is_not_shown(sandbox: Sandbox) -> None:
    """It may tell what the question held that ended the process before."""
    files = {"adapters.py": b"print('first')\ndef run_softmax(x, dim):\n    return dim\n"}
    with Interview(sandbox, Submission("x", files, "adapters")) as interview:
        interview.ask(softmax(0))
        interview.end_worker()
        files["adapters.py"] = b"print('later')\n1 / 0\n"
        answers = [interview.ask(softmax(0)) for _ in range(2)]
        assert interview.imported
        assert interview.imported.printed[0] == "first\n"
    assert [answer.failure and answer.failure.type for answer in answers] == ["ZeroDivisionError"] * 2
    assert [answer.printed[0] for answer in answers] == ["", ""]


def test_the_time_is_that_of_all_interviews_with_a_submission(sandbox: Sandbox) -> None:
    submission = Submission("x", {"adapters.py": COUNTING.format(body="time.sleep(1.2)").encode()}, "adapters")
    limits = Limits(seconds=1)
    with Interview(sandbox, submission, limits) as first:
        assert not first.ask(softmax(0)).is_failed  # what looks like sleep may turn out to be load
    with Interview(sandbox, submission, limits, spent=first.spent) as second:
        answer = second.ask(softmax(1))
    assert str(answer.stopped) == "run_softmax has used the 1 s that all its calls may take"


def test_a_question_may_hold_what_an_earlier_answer_held(sandbox: Sandbox) -> None:
    found = ask_all(sandbox, "pass", [softmax(7), softmax(Earlier(0, 2)), softmax(Earlier(1, 9))])["test 0"]
    assert found[1].decoded[2] == 7
    assert isinstance(found[2].stopped, NotAsked)
    assert "not called with what the call before it gave" in str(found[2].stopped)


def test_a_call_with_what_no_answer_held_is_not_a_question() -> None:
    held = torch.ones(1)
    question = softmax(7, Earlier(0, 1))
    assert question.is_asked_by(softmax(7, held), [[None, held]])
    assert not question.is_asked_by(softmax(7, held), [[None, torch.ones(1)]])
    for values in ([], [None], [[]]):
        assert not question.is_asked_by(softmax(7, held), values)


def test_a_question_with_a_limit_of_memory_has_a_process_of_its_own(sandbox: Sandbox) -> None:
    found = ask_all(sandbox, "pass", [softmax(0), softmax(1, memory=64 << 20), softmax(2)])["test 0"]
    assert [answer.decoded[0] for answer in found] == [1, 1, 2]
    assert found[1].decoded[1] != found[0].decoded[1] == found[2].decoded[1]


FORGERIES = {
    "twice": "send = serve.send\nserve.send = lambda channel, frame: send(channel, 2 * frame)",
    "with another token": "note = serve._annotate\nserve._annotate = lambda *a: note(*a) | {'token': '99'}",
    "with the token before": "note, old = serve._annotate, ['']\n"
    "def forge(reply, header, watch):\n"
    "    old.append(header['token'])\n"
    "    return note(reply, header, watch) | {'token': old[-2]}\n"
    "serve._annotate = forge",
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_an_answer_out_of_turn_is_a_violation(sandbox: Sandbox, forgery: str) -> None:
    code = f"from whichline_grader.sandbox.inside import serve\n{FORGERIES[forgery]}"
    body = f"exec({code!r}, globals()) if calls == 3 else None"
    found = ask_all(sandbox, body, [softmax(dim) for dim in range(5)])["test 0"]
    violations = [isinstance(answer.stopped, ProtocolViolation) for answer in found]
    assert violations[:2] == [False, False]
    assert any(violations)
    assert not found[4].is_failed  # a new process
