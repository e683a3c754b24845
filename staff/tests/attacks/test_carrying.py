"""Attacks on errors carried forward: no points that were not earned, no harm to the grader.

Each has a wrong earlier function, so that the grader answers for it when a later test that failed is asked again.
"""

import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest

from staff.tests.attacks.grade import only
from staff.tests.grading.test_carried_forward import BIAS, CARRIED, DIRECTION, SCALE, edit
from whichline.engine.result import Result
from whichline_grader.grading.course import Course
from whichline_grader.grading.graded import Notes
from whichline_grader.grading.one_submission import grade_one
from whichline_grader.grading.suite import GradedSuite
from whichline_grader.sandbox.confinement import Sandbox
from whichline_grader.sandbox.limits import Limits
from whichline_grader.sandbox.submission import Submission

pytestmark = pytest.mark.nightly

LIMITS = Limits(call_seconds=1, seconds=5, patience=60, memory_bytes=512 << 20)
MOST_SECONDS = 20.0  # that the processor computes on this side, however busy the machine is
HANGS = 600  # seconds on the clock after which no end is to be expected
MOST_MEMORY = 300 << 20

OWN = (
    *("test_softmax[3d-last-dim]", "test_scaled_dot_product_attention[3d-random-mask]"),
    *("test_linear[3d]", "test_rope[in-order]", "test_rope[small-theta]"),
)
MULTIHEAD = ("test_multihead_self_attention[3d]", "test_hidden_multihead_self_attention[two-heads]")
LATER = {
    "MULTIHEAD": MULTIHEAD,
    "ONE": MULTIHEAD[:1],
    "ONE_HEAD": ("test_multihead_self_attention[one-head]", "test_hidden_multihead_self_attention[one-head]"),
    "LARGER": ("test_multihead_self_attention[two-batch-dims]",),
    "ROPE": tuple(f"test_multihead_self_attention_with_rope[{case}]" for case in ("in-order", "small-theta")),
    "MODULE": ("test_attention_module[3d-no-mask]", "test_hidden_attention_module[3d-nothing]"),
    "PIECES": ("test_decoding_in_pieces[no-window]",),
}
MISTAKES = {"SCALE": SCALE, "BIAS": BIAS, "DIRECTION": DIRECTION}
# The first does all work of its own then, and the second is charged for what it called.
EARNED = {name: {*MULTIHEAD} for name in ("right_when_asked_again", "forbidden_when_asked_again")}

PRELUDE = """
import functools, json, os, struct, sys, threading, time
import torch
from cs336_basics.nn import functional
from whichline_grader.sandbox.inside import frames, serve

ORDER = (
    *("d_model", "num_heads", "max_seq_len", "theta", "q_proj_weight", "k_proj_weight", "v_proj_weight"),
    *("o_proj_weight", "in_features", "token_positions"),
)

def by_position(run):
    '''Let an adapter have short names for what the tests give by name.'''
    @functools.wraps(run)
    def called(*given, **named):
        return run(*given, *(named[name] for name in ORDER if name in named))
    return called

def is_answered():
    return hasattr(functional.scaled_dot_product_attention, "__wrapped__")

def serving():
    '''What the function knows that waits for questions: the question and its token among it.'''
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "serve":
        frame = frame.f_back
    return frame.f_locals if frame else {"header": {}, "tokens": [""]}

def ask(request, tensors=()):
    '''Send a request as the stand-in would, and return what the grader says.'''
    return serve._call_grader(3, serving()["tokens"], request, tensors)

def borrow(call, **arguments):
    '''The answer of an earlier function; None if there is none.'''
    tensors = []
    encoded = {name: frames.encode(x, tensors) for name, x in arguments.items()}
    header, outputs = ask({"borrow": call, "arguments": encoded}, tensors)
    return outputs[0] if "value" in header else None

def attend(*arguments):
    return functional.scaled_dot_product_attention(*arguments)

def causal(x):
    return torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()

def all_but_attention(heads, W_Q, W_K, W_V, W_O, x, attend):
    Q, K, V = ((x @ W.mT).unflatten(-1, (heads, -1)).transpose(-2, -3) for W in (W_Q, W_K, W_V))
    return attend(Q, K, V, causal(x)).transpose(-2, -3).flatten(-2) @ W_O.mT
"""

# A head is `NAME: MISTAKES: TESTS`: mistakes in earlier problems, and the later tests on which it is graded. Below it
# comes the body of `run_multihead_self_attention`, or all that follows the prelude in adapters.py.
FOR_POINTS = r"""
only_calls: SCALE: MULTIHEAD ONE_HEAD
    # Return what attention makes of the input, and no work of its own.
    return attend(x, x, x, causal(x))

leaves_out_the_mask: SCALE: MULTIHEAD
    # Do all but the mask, which the right program would give.
    return all_but_attention(num_heads, *weights, x, lambda Q, K, V, mask: attend(Q, K, V))

leaves_the_mask_to_the_grader: SCALE: MULTIHEAD
    # Ask without a mask, so that the right program's own is filled in.
    def unmasked(Q, K, V, mask):
        found = borrow("run_scaled_dot_product_attention", Q=Q, K=K, V=V) if is_answered() else None
        return V if found is None else found
    return all_but_attention(num_heads, *weights, x, unmasked)

a_mask_of_numbers: SCALE: MULTIHEAD
    # Give a mask of numbers in the place of one of booleans, which adds what it likes to the scores.
    def odd(Q, K, V, mask):
        found = borrow("run_scaled_dot_product_attention", Q=Q, K=K, V=V, mask=mask.float()) if is_answered() else None
        return V if found is None else found
    return all_but_attention(num_heads, *weights, x, odd)

attends_in_one_piece: SCALE: MULTIHEAD
    # Let the grader attend over all heads at once, without splitting them.
    return attend(x @ W_Q.mT, x @ W_K.mT, x @ W_V.mT, causal(x)) @ W_O.mT

asks_for_too_many_answers: SCALE: MULTIHEAD
    # Ask for as many vectors as the right program, but for an answer of each value to each query.
    def pairs(Q, K, V, mask):
        found = attend(Q.unsqueeze(0), K.unsqueeze(0), torch.stack((V.narrow(0, 0, 1), V.narrow(0, -1, 1))), mask)
        return found[0]
    return all_but_attention(num_heads, *weights, x, pairs)

asks_twice: SCALE: MULTIHEAD
    # Ask for something else first, and then for what it needs.
    def second(Q, K, V, mask):
        attend(V, Q, K, None)
        return attend(Q, K, V, mask)
    return all_but_attention(num_heads, *weights, x, second)

lends_the_later_function: SCALE: MULTIHEAD ONE_HEAD
    # Call the later function in the earlier adapter, so that it is the one for which the grader answers.
    def everything(Q, K, V, mask, weights=None):
        return Q * 0
    def run_scaled_dot_product_attention(Q, K, V, mask=None):
        return everything(Q, K, V, mask)
    def run_multihead_self_attention(d_model, num_heads, W_Q, W_K, W_V, W_O, x):
        return everything(x, x, x, causal(x), (W_Q, W_K, W_V, W_O))

lends_another_problem: none: MULTIHEAD ONE_HEAD
    # Call softmax in the adapter of attention, with all that attention gets.
    def softmax(x, dim, Q=None, K=None, V=None, mask=None):
        return x.exp2() / x.exp2().sum(dim, keepdim=True)
    def run_softmax(in_features, dim):
        return softmax(in_features, dim)
    def run_scaled_dot_product_attention(Q, K, V, mask=None):
        return softmax(Q @ K.mT, -1, Q, K, V, mask) @ V
    def run_multihead_self_attention(d_model, num_heads, W_Q, W_K, W_V, W_O, x):
        return softmax(x, -1, x, x, x, causal(x))

keeps_what_was_lent: SCALE: MULTIHEAD
    # Ask for the gradients of what was lent for the question before this one.
    if is_answered():
        zero = torch.zeros(*x.shape[:-2], num_heads, x.shape[-2], d_model // num_heads)
        for number in (0, -1, 1, 10**30):
            header, tensors = ask({"borrow": number, "cotangents": [{"tensor": 0}]}, [zero + 1])
            if tensors:
                return tensors[0].transpose(-2, -3).flatten(-2)
        return all_but_attention(num_heads, *weights, x, lambda *all: attend(*all) + 1)

keeps_the_stand_in: SCALE: MULTIHEAD
    # Keep the stand-in that one question had, and what it said, for the next one.
    kept = []
    def keep(*arguments):
        kept.append(attend(*arguments))
        return kept[0] if kept[0].shape == arguments[0].shape else kept[-1] * 0
    def run_multihead_self_attention(d_model, num_heads, W_Q, W_K, W_V, W_O, x):
        return all_but_attention(num_heads, W_Q, W_K, W_V, W_O, x * len(kept), keep)

lies_about_its_tensors: SCALE: MULTIHEAD
    # Ask with tensors that say one thing of themselves and hold another.
    class Lying(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            with torch._C.DisableTorchFunctionSubclass():
                return function(*args, **(kwargs or {}))
        shape = property(lambda self: torch.Size((1, 1)))
        requires_grad = property(lambda self: object())
        def detach(self):
            return self
        resolve_neg = detach
        def numpy(self):
            return torch.zeros(1000).numpy()
    def run_multihead_self_attention(d_model, num_heads, W_Q, W_K, W_V, W_O, x):
        return all_but_attention(
            num_heads, W_Q, W_K, W_V, W_O, x, lambda *all: attend(*(each.as_subclass(Lying) for each in all))
        )

lets_nothing_be_replaced: SCALE: MULTIHEAD
    # Refuse to have a function replaced, in a module that cannot be written.
    class Fixed(type(functional)):
        def __setattr__(self, name, value):
            raise AttributeError(name)
    functional.__class__ = Fixed
    def run_multihead_self_attention(d_model, num_heads, W_Q, W_K, W_V, W_O, x):
        return attend(x, x, x, None)

fights_for_the_profile: SCALE: MULTIHEAD
    # Keep the grader from seeing which function is called.
    sys.setprofile = lambda function: None
    def run_multihead_self_attention(d_model, num_heads, W_Q, W_K, W_V, W_O, x):
        return attend(x, x, x, None)

answers_the_lesson: SCALE: MULTIHEAD
    # Answer the call that shows its function before that is looked at, and say that another one is it.
    def run_scaled_dot_product_attention(Q, K, V, mask=None):
        served = serving()
        if "lesson" in served["header"]:
            reply = {"token": served["tokens"][0], "value": True, "call": "run_multihead_self_attention"}
            os.write(3, frames.pack(reply | {"passed": True, "borrow": None, "lesson": ["in_features"]}))
        return functional.scaled_dot_product_attention(Q, K, V, mask)

ends_in_the_lesson: SCALE: MULTIHEAD
    # End the process in the call that shows its function.
    def run_scaled_dot_product_attention(Q, K, V, mask=None):
        if "lesson" in serving()["header"]:
            os._exit(0)
        return functional.scaled_dot_product_attention(Q, K, V, mask)
    def run_linear(d_in, d_out, weights, in_features):
        return in_features @ weights.mT + 0.1
    def run_multihead_self_attention(d_model, num_heads, W_Q, W_K, W_V, W_O, x):
        return x * 0

hangs_in_the_lesson: SCALE: ONE
    # Sleep in the call that shows its function.
    def run_scaled_dot_product_attention(Q, K, V, mask=None):
        if "lesson" in serving()["header"]:
            time.sleep(60)
        return functional.scaled_dot_product_attention(Q, K, V, mask)
    def run_multihead_self_attention(d_model, num_heads, W_Q, W_K, W_V, W_O, x):
        return x * 0

writes_behind_a_request: SCALE: MULTIHEAD
    # Send an answer right behind a request, so that it is there before the question is closed.
    if is_answered():
        token = serving()["tokens"][0]
        request = frames.pack({"token": token, "borrow": "run_scaled_dot_product_attention", "arguments": {}})
        answer = frames.pack({"token": token, "value": {"tensor": 0}, "outputs": 1}, [x * 0])
        os.write(3, request + answer * 3)

forbidden_when_asked_again: SCALE: MULTIHEAD
    # Call torch's own attention when it is asked again alone, where nobody may look.
    if is_answered():
        part = torch.zeros(1, d_model // num_heads)
        attend(part, part, part, None)
        own = torch.nn.functional.scaled_dot_product_attention
        return all_but_attention(num_heads, *weights, x, lambda Q, K, V, mask: own(Q, K, V, mask))

right_when_asked_again: SCALE: MULTIHEAD
    # Be right only when it is asked again: it does all work of its own there, so it has earned that.
    if is_answered():
        return all_but_attention(num_heads, *weights, x, attend)

weights_by_a_gradient: SCALE: MODULE
    # Get the weights of a module as gradients of attention.
    def run_scaled_dot_product_attention_module(Q, K, V, mask, dropout, training, seed):
        values = V.detach().requires_grad_()
        with torch.enable_grad():
            answer = attend(Q, K, values, mask)
        queries, width = Q.shape[-2], V.shape[-1]
        by = torch.eye(queries, width).expand(*V.shape[:-2], -1, -1)
        return answer, torch.autograd.grad(answer, values, by)[0].mT[..., :queries, :]

no_rotation_of_its_own: SCALE DIRECTION: ROPE
    # Ask for rotation by positions that are not the student's: the right ones are not filled in.
    def run_multihead_self_attention_with_rope(d_model, heads, most, theta, W_Q, W_K, W_V, W_O, x, positions=None):
        def rotate(x):
            found = borrow("run_rope", in_query_or_key=x)
            found = borrow("run_rope", in_query_or_key=x, token_positions=None) if found is None else found
            return x if found is None else found
        if not is_answered():
            return x * 0
        rotated = lambda Q, K, V, mask: attend(rotate(Q), rotate(K), V, mask)
        return all_but_attention(heads, W_Q, W_K, W_V, W_O, x, rotated)
"""

FOR_HARM = r"""
broadcasts: SCALE: LARGER
    # Ask with queries, keys and values that each have a dimension of their own.
    if is_answered():
        vectors = x.numel() // d_model * num_heads
        part = torch.ones(vectors, d_model // num_heads)
        Q, K, V = part[:, None, None, None], part[None, :, None, None], part[None, None, :, None]
        while True:
            borrow("run_scaled_dot_product_attention", Q=Q, K=K, V=V, mask=None)

large_masks: SCALE: MULTIHEAD
    # Ask with a mask that has many more dimensions than the scores, again and again.
    if is_answered():
        part = torch.ones(x.shape[-2], d_model // num_heads)
        while True:
            mask = torch.ones(800_000, 1, 1, dtype=torch.bool)
            borrow("run_scaled_dot_product_attention", Q=part, K=part, V=part, mask=mask)

sleeps_between_requests: SCALE: ONE
    # Ask now and then, and sleep in between for a little less than a call may take.
    while is_answered():
        borrow("run_scaled_dot_product_attention", Q=x)
        time.sleep(0.8)

half_a_request: SCALE: ONE
    # Send half of a request, and wait for the answer.
    if is_answered():
        os.write(3, struct.pack("<IQ", 1000, 1 << 20) + b"{")
        os.read(3, 1)
"""

# The first piece returns these as its cache, and the next question hands them back.
CACHE = """
cache_of_{}: SCALE BIAS: PIECES
    # Return {}.
    def run_decoding(*arguments, **named):
        x, kv_heads = arguments[10], arguments[2]
        attend(x, x, x, None)
        return x * 0, *[{}] * 2
"""
CACHES = (
    ("another_shape", "keys for other heads", "torch.rand(2, 1, 3, 4)"),
    ("another_batch", "keys of another batch", "torch.rand(9, kv_heads, 3, 4)"),
    ("no_dimensions", "a single number", "torch.tensor(1.0)"),
    ("whole_numbers", "whole numbers", "torch.ones(2, kv_heads, 3, 4, dtype=torch.int64)"),
    ("text", "a text", "'keys'"),
)
FOR_POINTS += "".join(CACHE.format(*each) for each in CACHES)
FOR_HARM += CACHE.format("nothing", "a million tokens of no batch: no bytes", "torch.ones(0, kv_heads, 4_000_000, 4)")


class Attack(NamedTuple):
    """A submission that tries to get from the grader what it should not."""

    name: str
    mistakes: str
    later: str
    code: str

    @property
    def tests(self) -> tuple[str, ...]:
        return tuple(test for name in self.later.split() for test in LATER[name])

    def submission(self) -> Submission:
        made, code = edit(*(MISTAKES[name] for name in self.mistakes.split() if name in MISTAKES)), dedent(self.code)
        if "def run_" not in code:
            code = (
                "def run_multihead_self_attention(d_model, num_heads, W_Q, W_K, W_V, W_O, x):\n"
                f"    weights = (W_Q, W_K, W_V, W_O)\n{self.code}\n    return x * 0\n"
            )
        code = code.replace("def run_multihead_self", "@by_position\ndef run_multihead_self")
        made.files["adapters.py"] += (PRELUDE + code).encode()
        return made


def each_of(text: str) -> pytest.MarkDecorator:
    _, *pieces = re.split(r"^(\w+): (.*): (.*)$", text, flags=re.MULTILINE)
    attacks = [Attack(*pieces[start : start + 4]) for start in range(0, len(pieces), 4)]
    return pytest.mark.parametrize("attack", attacks, ids=[attack.name for attack in attacks])


@pytest.fixture(autouse=True)
def unexplained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do without the search for what is wrong, which these attacks do not aim at."""
    monkeypatch.setattr("whichline_grader.grading.one_submission.draw_anew", lambda *_: [])
    monkeypatch.setattr("whichline_grader.grading.one_submission.request_diagnosis", lambda *_: ((), ""))
    monkeypatch.setattr("whichline_grader.grading.one_submission.find_figure", lambda _: None)


def grade(suite: GradedSuite, box: Sandbox, work: Submission, tests: tuple[str, ...]) -> tuple[list[Result], Notes]:
    """Grade on the earlier problems' own tests and on some later ones."""
    suite = replace(only(suite, OWN + tests), course=Course(limits=LIMITS))
    assert {test.name for test in suite.suite.tests} == {*OWN, *tests}
    results, notes, _ = grade_one(suite, box, work)
    return results, notes


def find_carried(results: list[Result]) -> set[str]:
    """The tests that count as passed since the grader answered for an earlier problem."""
    return {result.test for result in results if CARRIED in result.staff}


def check_neighbour(graded: GradedSuite, sandbox: Sandbox, tests: tuple[str, ...]) -> None:
    """Grade an honest submission, which passes everything."""
    results, _ = grade(graded, sandbox, edit(), tests)
    assert all(result.passed for result in results)


@each_of(FOR_POINTS)
def test_an_attack_gets_no_point_it_has_not_earned(graded_suite: GradedSuite, sandbox: Sandbox, attack: Attack) -> None:
    """It passes no later test by itself, and when it is asked again those alone that it may."""
    results, notes = grade(graded_suite, sandbox, attack.submission(), attack.tests)
    later = {result.test for result in results if result.passed and result.test not in OWN}
    assert later == find_carried(results) == EARNED.get(attack.name, set())
    if attack.name == "forbidden_when_asked_again":
        assert notes.forbidden.get("multihead_self_attention"), "what it called is charged to nobody"
    check_neighbour(graded_suite, sandbox, attack.tests)


@each_of(FOR_HARM)
def test_an_attack_does_not_harm_the_grader(graded_suite: GradedSuite, sandbox: Sandbox, attack: Attack) -> None:
    check_neighbour(graded_suite, sandbox, attack.tests)
    with suppress(PermissionError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins again
    before, started = peak_memory(), time.process_time()
    with at_most(HANGS):
        results, _ = grade(graded_suite, sandbox, attack.submission(), attack.tests)
    seconds, memory = time.process_time() - started, peak_memory() - before
    assert not find_carried(results)
    assert not any(result.passed for result in results if result.test in attack.tests)
    assert seconds < MOST_SECONDS
    assert memory < MOST_MEMORY, f"took {memory >> 20} MiB more"
    check_neighbour(graded_suite, sandbox, attack.tests)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        pytest.fail(f"grading does not end within {seconds:g} s")  # which is no Exception that anybody catches

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def peak_memory() -> int:
    """The most bytes that this process held at once."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines())
    return int(lines["VmHWM"].split()[0]) << 10


def test_the_right_program_that_these_attacks_pretend_to_be(graded_suite: GradedSuite, sandbox: Sandbox) -> None:
    """Only then do they say anything."""
    tests = {test for each in LATER.values() for test in each}
    results, _ = grade(graded_suite, sandbox, edit(SCALE, BIAS, DIRECTION), tuple(tests))
    assert all(result.passed for result in results if result.test in tests - {*LATER["MODULE"]})
    assert find_carried(results) >= tests - {*LATER["MODULE"]}
