"""Errors carried forward: who pays once, and who may not pass for that."""

import json
import math
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from staff.tests import ROOT
from staff.tests.attacks.grade import only
from whichline.engine.suite import Suite
from whichline_grader.authoring.programs import RIGHT
from whichline_grader.authoring.spec import Adapter
from whichline_grader.grading.carried_forward import MOST_REFUSED, MOST_REQUESTS, StandIn, list_calls
from whichline_grader.grading.one_submission import find_tests, grade_one, reproduce_tests
from whichline_grader.grading.suite import GradedSuite
from whichline_grader.release.verify import run_suite
from whichline_grader.sandbox.confinement import Sandbox
from whichline_grader.sandbox.inside.frames import PREFIX, FrameError, pack
from whichline_grader.sandbox.limits import Limits
from whichline_grader.sandbox.remote_call import RemoteCall
from whichline_grader.sandbox.submission import Submission, take_in

CARRIED = "passes when the right program answers"
FUNCTIONAL, NN = "cs336_basics/nn/functional.py", "cs336_basics/nn"
FILES = take_in(ROOT).files
FUNCTIONS = (
    *("test_softmax", "test_scaled_dot_product_attention", "test_linear", "test_rope", "test_attention_module"),
    *("test_multihead_self_attention", "test_multihead_self_attention_with_rope", "test_multihead_attention"),
    *("test_multihead_self_attention_with_rope_gradients", "test_blockwise_attention", "test_decoding_in_pieces"),
    *("test_hidden_attention", "test_hidden_multihead_self_attention", "test_decoding_token_by_token"),
    "test_multihead_self_attention_does_not_look_ahead",
)
Edit = tuple[str, str, str]  # a file, some of it, and what stands there instead

BASE_2 = (FUNCTIONAL, "torch.exp(logits - maximum)", "torch.exp2(logits - maximum)")
HALF = "return weighted_values(attention_weights(Q / 2, K, mask), V)"
SCALE = (FUNCTIONAL, "return weighted_values(weights, V)", HALF)
UNSCALED = (FUNCTIONAL, "/ math.sqrt(Q.shape[-1])", "/ Q.shape[-1]")  # in what other problems call, too
BIAS = (f"{NN}/linear.py", 'd_out d_in -> ... d_out")', 'd_out d_in -> ... d_out") + 0.1')
BACKWARDS = "even * cos + odd * sin, odd * cos - even * sin"
DIRECTION = (FUNCTIONAL, "even * cos - odd * sin, even * sin + odd * cos", BACKWARDS)
THETA = ("adapters.py", "Embedding(theta, d_model // num_heads,", "Embedding(theta / 2, d_model // num_heads,")
SHORT = ("adapters.py", "theta, d_model // num_heads, max_seq_len", "theta, d_model // num_heads, 2")
DOUBLED = (f"{NN}/attention_module.py", "= attention_scores(Q, K, mask)", "= 2 * attention_scores(Q, K, mask)")
PEEKS = (f"{NN}/attention.py", ".tril()", ".tril(1)")
BODY = "    # BEGIN SOLUTION\n    check_attention_arguments(Q, K, V, mask)\n    weights"
NOT_WRITTEN = (BODY, "    raise NotImplementedError\n    weights")
INLINE = "lambda q, k, v, m: (q @ k.mT / 9).masked_fill(~m, -torch.inf).softmax(-1) @ v"
SLEEPS = (FUNCTIONAL, BASE_2[1], f"(__import__('time').sleep(0.6), {BASE_2[2]})[1]")
SCORES = torch.rand(2, 3, 4)
IN_ADAPTERS = """
def run_softmax(in_features, dim):
    e = torch.exp2(in_features - in_features.amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)
def run_scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.mT / Q.shape[-1] ** 0.5
    return run_softmax(scores if mask is None else scores.masked_fill(~mask, -torch.inf), -1) @ V
"""
IN_A_CLASS = """
class Tools:
    @staticmethod
    def softmax(x, dim):
        e = torch.exp2(x - x.amax(dim, keepdim=True))
        return e / e.sum(dim, keepdim=True)
    @classmethod
    def attend(cls, Q, K, V, mask):
        scores = Q @ K.mT / Q.shape[-1] ** 0.5
        return cls.softmax(scores if mask is None else scores.masked_fill(~mask, -torch.inf), -1) @ V
def run_softmax(in_features, dim):
    return Tools.softmax(in_features, dim)
def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return Tools.attend(Q, K, V, mask)
"""


@pytest.fixture(scope="module")
def suite(graded_suite: GradedSuite) -> GradedSuite:
    return only(graded_suite, [test.name for test in graded_suite.suite.tests if test.function in FUNCTIONS])


def edit(*edits: Edit, added: str = "") -> Submission:
    """The solution with some of it replaced, and something `added` to its adapters."""
    files = dict(FILES)
    for file, old, new in edits:
        assert old.encode() in files[file], f"{file} has no {old}"
        files[file] = files[file].replace(old.encode(), new.encode(), 1)
    files["adapters.py"] += added.encode()
    return Submission("x", files, "adapters")


def find_lost(suite: GradedSuite, sandbox: Sandbox, submission: Submission) -> set[str]:
    """The problems in which a submission loses points."""
    results, _, _ = grade_one(suite, sandbox, submission)
    return {result.problem for result in results if result.points != result.maximum}


# Submissions, and what loses points; where a mistake is in one early function, `test_paid_for_once.py` tries it.
PAID = {
    "scores": (edit(UNSCALED), {"scaled_dot_product_attention"}),
    "module": (edit(DOUBLED), {"attention_module"}),
    "three": (edit(BASE_2, BIAS, DIRECTION), {"softmax", "linear", "rope"}),
    "and its own": (edit(SCALE, PEEKS), {"scaled_dot_product_attention", "multihead_self_attention"}),
    "and the rope is made with another theta": (edit(DIRECTION, THETA), {"rope", "multihead_self_attention"}),
    "and the rope is made too short": (edit(DIRECTION, SHORT), {"rope", "multihead_self_attention"}),
    "in adapters.py": (edit(added=IN_ADAPTERS), {"softmax"}),
    "in a class": (edit(added=IN_A_CLASS), {"softmax"}),
}


@pytest.mark.nightly
@pytest.mark.parametrize("mistake", PAID)
def test_a_mistake_is_paid_for_in_its_own_problem(suite: GradedSuite, sandbox: Sandbox, mistake: str) -> None:
    submission, problems = PAID[mistake]
    assert find_lost(suite, sandbox, submission) == problems


CALL = (f"{NN}/attention.py", "scaled_dot_product_attention(Q, K, V,")
# Edits, and the problems in which staff are told so: nobody can say which of two attentions is meant.
ALONE = {
    "not written": ([(FUNCTIONAL, *NOT_WRITTEN)], ()),
    "written again": ([SCALE, (*CALL, f"({INLINE})(Q, K, V,")], ("multihead_self_attention",)),
}


@pytest.mark.nightly
@pytest.mark.parametrize("what", ALONE)
def test_multihead_attention_alone_is_judged_as_it_stands(suite: GradedSuite, sandbox: Sandbox, what: str) -> None:
    edits, told = ALONE[what]
    results, notes, _ = grade_one(suite, sandbox, edit(*edits))
    own = (each for each in results if each.problem == "multihead_self_attention")
    assert math.fsum(each.maximum - each.points for each in own) > 4
    assert notes.alone == told


@pytest.mark.nightly
def test_who_has_used_up_the_time_is_not_asked_again_with_more_of_it(suite: GradedSuite, sandbox: Sandbox) -> None:
    tests = [test for test in suite.suite.tests if test.stored and not test.hidden and not test.memory]
    names = [test.name for test in tests if test.function == "test_softmax"][:4]
    names += [test.name for test in tests if test.function == "test_scaled_dot_product_attention"][:5]
    few = only(suite, names)
    assert find_lost(few, sandbox, edit(SLEEPS)) == {"softmax"}
    hurried = replace(few, course=replace(few.course, limits=Limits(seconds=2)))
    assert find_lost(hurried, sandbox, edit(SLEEPS)) == {"softmax", "scaled_dot_product_attention"}


@pytest.mark.nightly
def test_a_disputed_test_is_explained(suite: GradedSuite, sandbox: Sandbox, capsys: pytest.CaptureFixture[str]) -> None:
    submission = edit(SCALE)
    _, _, sealed = grade_one(suite, sandbox, submission)
    multihead = "of the submission's own, it passes, so it counts as passed.\n"
    attention = "Of the test, the student reads: the answer is wrong\nIt is worth "
    for name, said in (("test_hidden_multihead_self_attention", multihead), ("test_hidden_attention", attention)):
        reproduce_tests(suite, submission, find_tests(suite, name), sealed)
        assert said in capsys.readouterr().out


@pytest.mark.nightly
def test_who_only_calls_a_wrong_attention_wins_nothing_by_it(suite: GradedSuite, sandbox: Sandbox) -> None:
    """In blocks or as a module, attention is the student's own work once more."""
    calls = """
from cs336_basics.nn.functional import scaled_dot_product_attention
def run_blockwise_attention(Q, K, V, mask=None, block_size=None):
    return scaled_dot_product_attention(Q, K, V, mask)
def run_scaled_dot_product_attention_module(Q, K, V, mask, dropout, training, seed):
    return scaled_dot_product_attention(Q, K, V, mask), scaled_dot_product_attention(Q, K, torch.eye(K.shape[-2]), mask)
def run_decoding(*arguments, in_features=None, **more):
    return scaled_dot_product_attention(arguments[10], arguments[10], arguments[10]), *arguments[11:]
"""
    submission = edit(SCALE, added=calls)
    alike = {"blockwise_attention", "attention_module", "decoding"}
    results = [result for result in grade_one(suite, sandbox, submission)[0] if result.problem in alike]
    assert not any(CARRIED in result.staff for result in results)
    passed = {result.test for result in results if result.passed}
    assert passed <= {"test_attention_module[3d-large-logits]"}  # where the largest score takes all, halved or not


def ask_lender(lender: StandIn, call: str, **arguments: Any) -> Any:
    """What a lender answers to a worker that wants to borrow: a number for each tensor, or nothing."""
    tensors = [x for x in arguments.values() if isinstance(x, Tensor)]
    encoded = {name: {"tensor": tensors.index(x)} if isinstance(x, Tensor) else x for name, x in arguments.items()}
    return send(lender, pack({"token": "token", "borrow": call, "arguments": encoded}, tensors))


def send(lender: StandIn, frame: bytes) -> Any:
    header, _ = PREFIX.unpack_from(frame)
    reply = lender.reply((frame[PREFIX.size : PREFIX.size + header], frame[PREFIX.size + header :]), "token")
    assert reply is not None
    header, _ = PREFIX.unpack_from(reply)
    return json.loads(reply[PREFIX.size : PREFIX.size + header])


@pytest.fixture
def lender() -> StandIn:
    """Lends the softmax of one attention, of scores (2, 3, 4)."""
    lender = StandIn([(RemoteCall("run_softmax", (torch.rand(2, 3), 1)), ("in_features", "dim"))])
    Q, K, V = torch.rand(2, 3, 5), torch.rand(2, 4, 5), torch.rand(2, 4, 6)
    asked = (Q, K, V, None)
    lender.begin(RemoteCall("run_scaled_dot_product_attention", asked, recorded=asked), "token")
    return lender


@pytest.mark.parametrize("dim", [-1, 2])
def test_what_the_right_program_asks_is_lent_once(lender: StandIn, dim: int) -> None:
    header = ask_lender(lender, "run_softmax", in_features=SCORES.clone().requires_grad_(), dim=dim)
    assert header["tensors"][0]["shape"] == [2, 3, 4]
    asked = {"token": "token", "borrow": header["number"], "cotangents": [{"tensor": 0}]}
    assert send(lender, pack(asked, [SCORES]))["gradients"] == [{"tensor": 0}]
    with pytest.raises(FrameError, match="something of another shape"):
        send(lender, pack(asked, [SCORES[:1]]))
    assert "value" not in ask_lender(lender, "run_softmax", in_features=SCORES, dim=dim)


def test_who_looks_at_calls_still_does_when_the_right_programs_are_listed() -> None:
    def look(*_: object) -> None: ...

    x = torch.rand(2, 3)
    sys.setprofile(look)
    try:
        calls = list_calls(RemoteCall("run_scaled_dot_product_attention", (x, x, x), recorded=(x, x, x)))
        assert sys.getprofile() is look
    finally:
        sys.setprofile(None)
    assert [each.call for each in calls] == ["run_softmax"]


def test_what_is_lent_may_be_asked_for_head_by_head(lender: StandIn) -> None:
    for each in SCORES:
        assert "value" in ask_lender(lender, "run_softmax", in_features=each, dim=-1)


NOT_SCORES = (torch.rand(2, 3, 5), torch.rand(99, 3, 4), SCORES[:0], SCORES > 0, SCORES.long(), SCORES.byte())


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("run_scaled_dot_product_attention", {"Q": SCORES, "K": SCORES, "V": SCORES}),
        ("run_multihead_self_attention", {"in_features": SCORES}),
        ("run_linear", {"weights": SCORES, "in_features": SCORES}),  # right, so that there is no lesson of it
        ("no such function", {"in_features": SCORES}),
        *(("run_softmax", {"in_features": SCORES, "dim": dim}) for dim in (0, -3, -17, 10**25, True, "-1", -1.0, None)),
        ("run_softmax", {"in_features": SCORES, "axis": -1}),
        *(("run_softmax", {"in_features": x, "dim": -1}) for x in (*NOT_SCORES, "text", None)),
        ("run_softmax", {}),
    ],
)
def test_what_no_right_program_asks_is_not_lent(lender: StandIn, call: str, arguments: Mapping[str, Any]) -> None:
    assert "value" not in ask_lender(lender, call, **arguments)
    assert not any(lender.used.values())


def test_a_lesson_lends_nothing(lender: StandIn) -> None:
    lender.begin(RemoteCall("run_softmax", (SCORES, 1), recorded=(SCORES, 1)), "of another question")
    assert "value" not in ask_lender(lender, "run_softmax", in_features=SCORES, dim=-1)


@pytest.mark.parametrize(
    "asked",
    [
        {"token": "another", "borrow": "run_softmax", "arguments": {}},
        {"token": "token", "borrow": "run_softmax", "arguments": []},
        {"token": "token", "borrow": "run_softmax", "arguments": {"in_features": {"tensor": 7}}},
        {"token": "token", "borrow": "run_softmax", "cotangents": []},
        {"token": "token", "borrow": 0, "cotangents": {}},
    ],
    ids=str,
)
def test_a_malformed_request_is_a_violation(lender: StandIn, asked: dict[str, Any]) -> None:
    with pytest.raises(FrameError):
        send(lender, pack(asked))


def test_who_never_stops_borrowing_is_stopped(lender: StandIn) -> None:
    for _ in range(MOST_REQUESTS):
        ask_lender(lender, "run_softmax", in_features=SCORES, dim=0)
    assert "value" not in ask_lender(lender, "run_softmax", in_features=SCORES, dim=-1)
    for _ in range(MOST_REFUSED - MOST_REQUESTS - 1):
        ask_lender(lender, "run_softmax", in_features=SCORES, dim=-1)
    with pytest.raises(FrameError, match="more is borrowed than any program can need"):
        ask_lender(lender, "run_softmax", in_features=SCORES, dim=-1)


@pytest.mark.parametrize(("count", "is_refused"), [(12, False), (13, True)])
def test_a_request_has_as_many_tensors_as_the_lesson(count: int, is_refused: bool) -> None:
    lesson = RemoteCall("run_multihead_self_attention", ([torch.ones(1) for _ in range(12)],))
    request = pack({"token": "token", "borrow": "run_softmax", "arguments": {}}, [SCORES] * count)
    with pytest.raises(FrameError) if is_refused else nullcontext():
        assert send(StandIn([(lesson, ("weights",))]), request) == {"tensors": []}


def always(value: float) -> dict[str, Adapter]:
    """Tensors of the right shape and dtype, all of one number."""

    def filled(right: Any) -> Any:
        return tuple(map(filled, right)) if isinstance(right, tuple) else torch.full_like(right, value)

    def of(right: Adapter) -> Adapter:
        return lambda *arguments, **named: filled(right(*arguments, **named))

    return {call: of(right) for call, right in RIGHT.items()}


TRIVIAL = {
    "zeros": always(0.0),
    "ones": always(1.0),
    "NaN": always(torch.nan),
    "the input itself": {
        "run_softmax": lambda in_features, dim: in_features,
        "run_scaled_dot_product_attention": lambda Q, K, V, mask=None: V,
        "run_linear": lambda in_features, **rest: in_features,
        "run_rope": lambda in_query_or_key, **rest: in_query_or_key,
        "run_multihead_self_attention": lambda in_features, **rest: in_features,
        "run_multihead_self_attention_with_rope": lambda in_features, **rest: in_features,
        "run_multihead_attention": lambda query, **rest: query,
        "run_blockwise_attention": lambda Q, K, V, mask, block_size: V,
    },
}


@pytest.mark.parametrize("program", TRIVIAL)
def test_what_computes_next_to_nothing_earns_next_to_nothing(solved_suite: Suite, program: str) -> None:
    """Also in bonus problems: where dropout is judged, weights that are all 0 would be right."""
    results = run_suite(solved_suite, TRIVIAL[program])
    for bonus in (False, True):
        some = [result for test, result in zip(solved_suite.tests, results, strict=True) if test.bonus == bonus]
        assert sum(result.points for result in some) < 0.03 * sum(result.maximum for result in some)


def test_who_looks_up_the_public_answers_earns_an_eighth(solved_suite: Suite) -> None:
    required = [test for test in solved_suite.tests if not test.bonus]
    assert sum(test.points for test in required if not test.hidden) < sum(test.points for test in required) / 8
