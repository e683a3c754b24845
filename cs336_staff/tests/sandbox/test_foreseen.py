"""What is sent ahead changes when things are computed, and no result."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from cs336_kit.engine.result import Result
from cs336_staff.grading.suite import GradedSuite
from cs336_staff.sandbox.confinement import Sandbox
from cs336_staff.sandbox.request import Request
from cs336_staff.sandbox.submission import Submission, take_in
from cs336_staff.sandbox.worker import Limits, ProtocolViolation, Worker

from .conftest import ROOT, Run

LAYERS = ("bubblewrap",)
COUNTING = (
    "calls = 0\ndef run_softmax(x, dim):\n    global calls\n    calls += 1\n    return [calls, dim, x.tolist()]\n"
)


def softmax_of(x: torch.Tensor, dim: int) -> Request:
    return Request(
        {"call": "run_softmax", "arguments": [{"tensor": 0}, dim], "grad_enabled": True, "recorded": True}, [x]
    )


def ahead(run: Run, source: str, *tests: list[int], **limits: float) -> Any:
    """Adapters of whose tests each is expected to call `run_softmax` on one number for each of `dims`."""
    adapters = run(source, **limits)
    adapters.worker.foresee([[softmax_of(torch.ones(1), dim) for dim in dims] for dims in tests])
    return adapters


def sent(worker: Worker) -> int:
    return worker._sequence - 1  # the first is the import


def test_a_call_that_was_foreseen_is_made_once(run: Run) -> None:
    adapters = ahead(run, COUNTING, list(range(40)))
    adapters.worker.next_test()
    for dim in range(40):
        assert adapters.run_softmax(torch.ones(1), dim) == [dim + 1, dim, [1]]
    assert sent(adapters.worker) == 40


def test_several_are_sent_ahead(run: Run) -> None:
    adapters = ahead(run, COUNTING, list(range(100)))
    adapters.worker.next_test()
    for dim in range(20):
        adapters.run_softmax(torch.ones(1), dim)
    assert 25 <= sent(adapters.worker) <= 36


@pytest.mark.parametrize(
    "x",
    [
        torch.zeros(1),
        -torch.zeros(1),
        torch.ones(1, 1),
        torch.ones(1, dtype=torch.float64),
        torch.ones(1, requires_grad=True),
    ],
)
def test_another_call_gets_its_own_answer(run: Run, x: torch.Tensor) -> None:
    adapters = ahead(run, COUNTING, [1, 2, 3, 4], [1, 2])
    adapters.worker.next_test()
    adapters.run_softmax(torch.ones(1), 1)
    adapters.run_softmax(torch.ones(1), 2)
    assert adapters.run_softmax(x, 3)[1:] == [3, x.tolist()]
    assert adapters.run_softmax(torch.ones(1), 4)[1:] == [4, [1]]
    adapters.worker.next_test()
    assert [adapters.run_softmax(torch.ones(1), dim)[1] for dim in (1, 2)] == [1, 2]


def test_zeros_of_both_signs_are_not_the_same(run: Run) -> None:
    request = softmax_of(torch.zeros(1), 0).encode()
    assert request.is_for(request.header, [torch.zeros(1)])
    assert not request.is_for(request.header, [-torch.zeros(1)])
    assert not request.is_for(request.header | {"arguments": [{"tensor": 0}, False]}, [torch.zeros(1)])


def test_a_test_that_ends_early_leaves_the_next_one_alone(run: Run) -> None:
    adapters = ahead(run, COUNTING, list(range(30)), [7, 8], [9])
    adapters.worker.next_test()
    for dim in range(10):
        adapters.run_softmax(torch.ones(1), dim)
    adapters.worker.next_test()
    assert adapters.run_softmax(torch.ones(1), 7)[1] == 7
    adapters.worker.next_test()
    assert adapters.run_softmax(torch.ones(1), 9)[1] == 9


def test_a_call_that_nobody_needs_may_kill_the_worker_and_no_test(run: Run) -> None:
    ends = "os._exit(1) if dim == 5 else time.sleep(60) if dim == 6 else None"
    source = f"import os, time\ndef run_softmax(x, dim):\n    {ends}\n    return dim\n"
    adapters = ahead(run, source, [1, 2, 3, 5, 5], [1, 2, 3, 6], [7])
    for _ in range(2):
        adapters.worker.next_test()
        assert [adapters.run_softmax(torch.ones(1), dim) for dim in (1, 2, 3)] == [1, 2, 3]
    adapters.worker.next_test()
    assert adapters.run_softmax(torch.ones(1), 7) == 7


FORGERIES = {
    "a reply twice": "send = serve.send\nserve.send = lambda channel, frame: send(channel, 2 * frame)",
    "another number": "note = serve._annotated\nserve._annotated = lambda *a: note(*a) | {'sequence': 99}",
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_replies_are_refused(run: Run, forgery: str) -> None:
    source = COUNTING.replace("    return", "    forge() if calls == 8 else 0\n    return")
    source += f"from cs336_staff.sandbox.inside import serve\ndef forge(): exec({FORGERIES[forgery]!r}, globals())\n"
    adapters = ahead(run, source, list(range(40)))
    adapters.worker.next_test()
    refused = r"expected the reply to request|bytes after the reply|before it had the request"
    with pytest.raises(ProtocolViolation, match=refused):  # noqa: PT012  (by which call, is a matter of time)
        for dim in range(40):
            assert adapters.run_softmax(torch.ones(1), dim)[1] == dim
    assert adapters.run_softmax(torch.ones(1), 3) == [1, 3, [1]]  # a new process


@pytest.fixture(scope="module")
def graded(graded_suite: GradedSuite) -> GradedSuite:
    tests = [test for test in graded_suite.suite.tests if test.problem in ("softmax", "scaled_dot_product_attention")]
    return replace(graded_suite, suite=replace(graded_suite.suite, tests=tests))


SUBMISSIONS = {
    "right": "",
    "wrong": "def run_softmax(x, dim):\n    return x.exp() / x.exp().sum(0, keepdim=True)",
    "raises": "def run_softmax(x, dim):\n    raise ValueError(f'no {dim} {x.shape}')",
    "exits": "import os\ndef run_softmax(x, dim):\n    os._exit(0) if x.ndim > 2 else None\n    return x.softmax(dim)",
    "hangs": "import time\ndef run_softmax(x, dim):\n    time.sleep(60 * (x.ndim == 3))\n    return x / 2",
    "no gradient": "def run_softmax(x, dim):\n    return (x.detach() - x.amax(dim, True)).exp()",
    "cannot be imported": "1 / 0",
}


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_results_are_those_without_it(sandbox: Sandbox, graded: GradedSuite, name: str) -> None:
    files = dict(take_in(ROOT).files)
    files["adapters.py"] += f"\n\n{SUBMISSIONS[name]}\n".encode()
    submission = Submission("x", files, "adapters")

    def results(suite: GradedSuite) -> list[Result]:
        with Worker(sandbox, submission, Limits(call_seconds=0.5)) as worker:
            return [replace(result, seconds=0) for result in suite.run(worker, suite.suite.tests)]

    with_it, without = results(graded), results(replace(graded, requests={}))
    assert with_it == without
    assert all(result.passed for result in with_it) == (name == "right")


def test_hidden_inputs_are_not_sent_before_the_public_tests_have_ended(sandbox: Sandbox, graded: GradedSuite) -> None:
    sent: list[Request] = []

    class Noting(Worker):
        def _send(self, conversation: Any, request: Request, test: int = 0) -> None:
            sent.append(request)
            super()._send(conversation, request, test)

    tests = graded.suite.tests
    public = [request for test in tests if not test.hidden for request in graded.requests[test.name]]
    with Noting(sandbox, take_in(ROOT)) as worker:
        assert all(result.passed for result in graded.run(worker, [test for test in tests if not test.hidden]))
        assert sent[1:] == public
        assert all(result.passed for result in graded.run(worker, [test for test in tests if test.hidden]))
    assert len(sent) > len(public) + 1
