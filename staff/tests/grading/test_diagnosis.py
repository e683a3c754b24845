"""Advice on a submission: what it finds, and what a submission can make of it."""

from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from staff.tests.attacks.grade import only
from staff.tests.grading.test_carried_forward import BIAS, edit
from whichline_grader.grading import findings, one_submission
from whichline_grader.grading.findings import LONGEST, request_diagnosis
from whichline_grader.grading.one_submission import grade_one
from whichline_grader.grading.suite import GradedSuite
from whichline_grader.sandbox.confinement import Sandbox, start
from whichline_grader.sandbox.limits import Limits
from whichline_grader.sandbox.submission import Submission

pytestmark = pytest.mark.slow

WRONG = """
import torch

def run_softmax(in_features, dim):
    e = torch.exp(in_features - in_features.amax(dim, keepdim=True))
    return e / e.sum(-1, keepdim=True)
"""
# It says what it likes of itself: of a test of another problem, in a file that is not there, and what moves a cursor.
FORGER = f"""{WRONG}
import json, sys

if advice := sys.modules.get("whichline_grader.sandbox.inside.diagnosis"):
    class Forged:
        def __init__(self, **more):
            self.more = more
        def as_json(self):
            return json.dumps(dict(problem="softmax", id="best", said=["\\x1b[2J" + "great" * 1000]) | self.more)
    class Deep:
        def as_json(self):
            return "[" * 100_000
    advice.find = lambda *_, **__: [
        Forged(), Forged(tests=["test_rope[spaced]"]), Forged(file="/etc/passwd", line=1), Forged(line="1"),
        Forged(said=3), Forged(problem=[]), Forged(file=[]), Forged(file={{}}, line=1),
        Forged(columns=[float("inf"), 0]), Forged(likewise=[float("-inf")]), Forged(likewise=[10**30]),
        Forged(line=10**4000), Forged(section="\\ud800"), Deep(),
    ]
"""
STEALER = """
def run_softmax(in_features, dim):
    from problems.softmax.reference import run_softmax as softmax
    return softmax(in_features.double(), dim).to(in_features.dtype)
"""
SEEKER = """
import os, sys, torch
PACKAGES = os.path.dirname(os.path.dirname(torch.__file__))
def run_softmax(in_features, dim):
    found = []
    for folder, folders, files in os.walk("/"):
        seen = {os.path.join(folder, each): each for each in folders}
        folders[:] = [each for path, each in seen.items() if path not in ("/proc", "/usr", PACKAGES, sys.base_prefix)]
        found += [os.path.join(folder, each) for each in files if each.endswith((".py", ".safetensors"))]
    raise ValueError(f"found {len(found)}: {found[:5]}")
"""
ENDLESS = f"""{WRONG}
import sys
while "whichline.locate.explain" in sys.modules: pass
"""
FIVE = """
import torch

def run_softmax(in_features, dim):
    x = in_features.float() if in_features.dtype in (torch.float16, torch.bfloat16) else in_features
    dim = -1 if x.ndim == 5 else dim
    e = torch.exp(x - x.amax(dim, keepdim=True))
    return (e / e.sum(dim, keepdim=True)).to(in_features.dtype)
"""
LESS_DROPOUT = """
from cs336_basics.nn.attention_module import ScaledDotProductAttention
class Little(ScaledDotProductAttention):
    def _drop(self, weights):
        return weights if self.dropout in (0.15, 0.6) else super()._drop(weights)
def run_scaled_dot_product_attention_module(Q, K, V, mask, dropout, training, seed):
    torch.manual_seed(seed)
    return Little(dropout).train(training)(Q, K, V, mask, return_weights=True)
"""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with start("bubblewrap", diagnosing=True) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def suite(graded_suite: GradedSuite) -> GradedSuite:
    """The tests of what is wrong here: other problems take most of the time."""
    chosen = ("softmax", "linear", "attention_module")
    return only(graded_suite, [test.name for test in graded_suite.suite.tests if test.problem in chosen])


def graded(suite: GradedSuite, sandbox: Sandbox, source: str):
    return grade_one(suite, sandbox, Submission("test", {"adapters.py": source.encode()}, "adapters"))


PLACES = {
    "in the adapters": ("adapters", "adapters.py", {"adapters.py": WRONG}),
    "in tests": ("tests.adapters", "tests/adapters.py", {"tests/adapters.py": WRONG}),
    "at the root": ("adapters", "model.py", {"adapters.py": "from model import run_softmax", "model.py": WRONG}),
    "in src": ("adapters", "src/ops.py", {"src/adapters.py": "from ops import run_softmax", "src/ops.py": WRONG}),
    "in another package": (
        "tests.adapters",
        "mine/nn/ops.py",
        {"tests/adapters.py": "from mine.nn.ops import run_softmax", "mine/nn/ops.py": WRONG},
    ),
}


@pytest.mark.parametrize("where", PLACES)
def test_the_line_of_a_wrong_number_is_told_wherever_it_lies(suite: GradedSuite, sandbox: Sandbox, where: str) -> None:
    adapters, file, sources = PLACES[where]
    files = {path: source.encode() for path, source in sources.items()}
    _, notes, _ = grade_one(suite, sandbox, Submission("test", files, adapters))
    finding = next(each for each in notes.explanations if each.problem == "softmax")
    assert (finding.file, finding.line) == (file, 6)
    assert finding.code[-2:] == ("    return e / e.sum(-1, keepdim=True)", "               ^^^^^^^^^^^^^^^^^^^^^^^")


def test_a_line_of_what_an_adapter_imports_when_it_is_called_is_told(suite: GradedSuite, sandbox: Sandbox) -> None:
    _, notes, _ = grade_one(suite, sandbox, edit(BIAS))
    (finding,) = notes.explanations
    assert (finding.problem, finding.file) == ("linear", BIAS[0])
    assert finding.said == ("Expected the answer; found that value plus 0.1.",)


def test_a_submission_that_writes_its_own_advice_earns_nothing_by_it(suite: GradedSuite, sandbox: Sandbox) -> None:
    right, _, _ = graded(suite, sandbox, WRONG)
    results, notes, _ = graded(suite, sandbox, FORGER)
    assert [each.points for each in results] == [each.points for each in right]
    (finding,) = notes.explanations
    assert len(finding.said[0]) <= LONGEST
    assert "\x1b" not in finding.said[0]
    assert notes.trouble == "13 of its findings were left out: they are not what the search for mistakes writes"


def test_what_the_adviser_knows_is_not_there_where_points_are_earned(suite: GradedSuite, sandbox: Sandbox) -> None:
    results, _, _ = graded(suite, sandbox, STEALER)
    assert not any(each.passed for each in results)


def test_no_file_of_it_is_left_there(suite: GradedSuite, sandbox: Sandbox) -> None:
    (result,), _, _ = graded(only(suite, {"test_softmax[1d]"}), sandbox, SEEKER)
    assert result.text.startswith("ValueError: found 0: []")


@pytest.mark.nightly
def test_no_file_of_it_is_left_in_the_second_layer(suite: GradedSuite) -> None:
    with start("process", diagnosing=True) as sandbox:
        test_no_file_of_it_is_left_there(suite, sandbox)


def test_no_answer_means_no_advice(suite: GradedSuite, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "LIMITS", Limits(call_seconds=1, seconds=2))
    results, _, _ = graded(suite, sandbox, WRONG)
    endless = Submission("test", {"adapters.py": ENDLESS.encode()}, "adapters")
    assert request_diagnosis(sandbox, endless, results)[0] == ()


def test_an_error_of_ours_costs_nothing(suite: GradedSuite, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    right, _, _ = graded(suite, sandbox, WRONG)
    monkeypatch.setattr(one_submission, "request_diagnosis", Mock(side_effect=TypeError("unhashable type: 'list'")))
    results, notes, _ = graded(suite, sandbox, WRONG)
    assert [each.outcome for each in results] == [each.outcome for each in right]
    assert notes.doubts[-1] == "the search for mistakes ended with TypeError: unhashable type: 'list'"


def test_a_search_that_ends_early_is_told_to_staff(suite: GradedSuite, sandbox: Sandbox) -> None:
    once = "import sys\nassert 'once' not in vars(sys), 'twice'\nsys.once = True\n"
    _, notes, _ = graded(suite, sandbox, once + WRONG)
    why = "CannotFollowError: the code cannot be imported a second time: AssertionError: twice (observed.py:"
    assert notes.explanations == ()
    assert notes.doubts[-1].startswith(f"The search for what is wrong in softmax ended early: {why}")


def test_what_fails_hidden_tests_alone_is_followed_on_no_secret_case(suite: GradedSuite, sandbox: Sandbox) -> None:
    results, notes, _ = graded(suite, sandbox, FIVE)
    failed = {each.test for each in results if each.problem == "softmax" and not each.passed}
    assert failed == {"test_hidden_softmax[5d-second-dim]"}
    (finding,) = (each for each in notes.explanations if each.problem == "softmax")
    assert (finding.file, finding.tests) == ("adapters.py", (*failed,))
    assert finding.line in (6, 7)


def test_what_a_judge_decides_is_not_held_against_a_stored_answer(suite: GradedSuite, sandbox: Sandbox) -> None:
    results, notes, _ = grade_one(suite, sandbox, edit(added=LESS_DROPOUT))
    assert {each.function for each in results if not each.passed} == {"test_hidden_attention_module_dropout"}
    assert not notes.explanations
