"""Attacks on errors carried forward: no points that were not earned, no harm to the grader.

Each has a wrong earlier function, so that the grader answers for it when a later test that failed is asked again.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from staff.tests.attacks.grade import only
from staff.tests.grading.test_carried_forward import BASE_2, BIAS, CARRIED, DIRECTION, SCALE, Edit, edit
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
ONE_HEAD = ("test_multihead_self_attention[one-head]", "test_hidden_multihead_self_attention[one-head]")
LARGER = ("test_multihead_self_attention[two-batch-dims]",)
LEARNS = ("test_multihead_self_attention_gradients[3d]",)
ROPE = (
    "test_multihead_self_attention_with_rope[in-order]",
    "test_multihead_self_attention_with_rope[small-theta]",
)
MODULE = ("test_attention_module[3d-no-mask]", "test_hidden_attention_module[3d-nothing]")
PIECES = ("test_decoding_in_pieces[no-window]",)

PRELUDE = """
import functools, json, os, struct, sys, threading, time
import torch
from cs336_basics.nn import functional

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
    return sys.modules["whichline_grader.sandbox.inside.serve"]._call_grader(3, serving()["tokens"], request, tensors)

def borrow(call, **arguments):
    '''The answer of an earlier function; None if there is none.'''
    tensors = []
    frames = sys.modules["whichline_grader.sandbox.inside.frames"]
    encoded = {name: frames.encode(x, tensors) for name, x in arguments.items()}
    header, outputs = ask({"borrow": call, "arguments": encoded}, tensors)
    return outputs[0] if "value" in header else None

def attend(*arguments):
    return functional.scaled_dot_product_attention(*arguments)

def heads_of(x, W, heads):
    return (x @ W.mT).unflatten(-1, (heads, -1)).transpose(-2, -3)

def causal(x):
    return torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()

def all_but_attention(heads, W_Q, W_K, W_V, W_O, x, attend):
    Q, K, V = (heads_of(x, W, heads) for W in (W_Q, W_K, W_V))
    return attend(Q, K, V, causal(x)).transpose(-2, -3).flatten(-2) @ W_O.mT
"""


@dataclass(frozen=True)
class Attack:
    """A submission that tries to get from the grader what it should not.

    Args:
        name: of the attack.
        tries: what it tries.
        code: what follows the prelude in adapters.py; a body of `run_multihead_self_attention`, which has no return,
            if no adapter is defined in it.
        edits: the mistakes in earlier problems.
        tests: the later tests on which it is graded.
        passes: those of them that it may pass when they are asked again.
    """

    name: str
    tries: str
    code: str
    edits: tuple[Edit, ...] = (SCALE,)
    tests: tuple[str, ...] = MULTIHEAD
    passes: tuple[str, ...] = ()

    def submission(self, *edits: Edit) -> Submission:
        code = self.code
        if "def run_" not in code:
            body = "\n".join(f"    {line}" for line in code.strip().splitlines())
            code = (
                "def run_multihead_self_attention(d_model, num_heads, W_Q, W_K, W_V, W_O, x):\n"
                f"    weights = (W_Q, W_K, W_V, W_O)\n{body}\n    return x * 0\n"
            )
        made = edit(*edits)
        code = code.replace("def run_multihead_self", "@by_position\ndef run_multihead_self")
        made.files["adapters.py"] += (PRELUDE + code).encode()
        return made


FOR_POINTS = [
    Attack(
        "only_calls",
        "Return what attention makes of the input, and no work of its own.",
        "return attend(x, x, x, causal(x))",
        tests=MULTIHEAD + ONE_HEAD,
    ),
    Attack(
        "leaves_out_the_mask",
        "Do all but the mask, which the right program would give.",
        "return all_but_attention(num_heads, *weights, x, lambda Q, K, V, mask: attend(Q, K, V))",
    ),
    Attack(
        "leaves_the_mask_to_the_grader",
        "Ask without a mask, so that the right program's own is filled in.",
        """
def unmasked(Q, K, V, mask):
    found = borrow("run_scaled_dot_product_attention", Q=Q, K=K, V=V) if is_answered() else None
    return V if found is None else found
return all_but_attention(num_heads, *weights, x, unmasked)
""",
    ),
    Attack(
        "a_mask_of_numbers",
        "Give a mask of numbers in the place of one of booleans, which adds what it likes to the scores.",
        """
def odd(Q, K, V, mask):
    found = borrow("run_scaled_dot_product_attention", Q=Q, K=K, V=V, mask=mask.float()) if is_answered() else None
    return V if found is None else found
return all_but_attention(num_heads, *weights, x, odd)
""",
    ),
    Attack(
        "asks_for_the_answer",
        "Ask for the later function itself, under all names that it might have.",
        """
named = {"in_features": x, "q_proj_weight": W_Q, "k_proj_weight": W_K, "v_proj_weight": W_V, "o_proj_weight": W_O}
for call in ("run_multihead_self_attention", "run_multihead_attention", "average_heads") if is_answered() else ():
    for more in ({}, {"d_model": d_model, "num_heads": num_heads}):
        if (answer := borrow(call, **named, **more)) is not None:
            return answer
""",
    ),
    Attack(
        "asks_for_what_is_right",
        "Ask for the linear layer, which is right and so not lent.",
        """
def project(x, W):
    found = borrow("run_linear", weights=W, in_features=x) if is_answered() else None
    return x if found is None else found
Q, K, V = (project(x, W).unflatten(-1, (num_heads, -1)).transpose(-2, -3) for W in (W_Q, W_K, W_V))
return project(attend(Q, K, V, causal(x)).transpose(-2, -3).flatten(-2), W_O)
""",
    ),
    Attack(
        "attends_in_one_piece",
        "Let the grader attend over all heads at once, without splitting them.",
        "return attend(x @ W_Q.mT, x @ W_K.mT, x @ W_V.mT, causal(x)) @ W_O.mT",
    ),
    Attack(
        "asks_for_too_much",
        "Ask for twice as many queries, keys and values as the right program.",
        """
def twice(Q, K, V, mask):
    return attend(*(torch.stack((each, each)) for each in (Q, K, V)), mask)[0]
return all_but_attention(num_heads, *weights, x, twice)
""",
    ),
    Attack(
        "asks_for_too_many_answers",
        "Ask for as many vectors as the right program, but for an answer of each value to each query.",
        """
def pairs(Q, K, V, mask):
    found = attend(Q.unsqueeze(0), K.unsqueeze(0), torch.stack((V.narrow(0, 0, 1), V.narrow(0, -1, 1))), mask)
    return found[0]
return all_but_attention(num_heads, *weights, x, pairs)
""",
    ),
    Attack(
        "asks_twice",
        "Ask for something else first, and then for what it needs.",
        """
def second(Q, K, V, mask):
    attend(V, Q, K, None)
    return attend(Q, K, V, mask)
return all_but_attention(num_heads, *weights, x, second)
""",
    ),
    Attack(
        "lends_the_later_function",
        "Call the later function in the earlier adapter, so that it is the one for which the grader answers.",
        """
def everything(Q, K, V, mask, weights=None):
    return Q * 0
def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return everything(Q, K, V, mask)
def run_multihead_self_attention(d_model, num_heads, W_Q, W_K, W_V, W_O, x):
    return everything(x, x, x, causal(x), (W_Q, W_K, W_V, W_O))
""",
        tests=MULTIHEAD + ONE_HEAD,
    ),
    Attack(
        "lends_another_problem",
        "Call softmax in the adapter of attention, with all that attention gets.",
        """
def softmax(x, dim, Q=None, K=None, V=None, mask=None):
    return x.exp2() / x.exp2().sum(dim, keepdim=True)
def run_softmax(in_features, dim):
    return softmax(in_features, dim)
def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return softmax(Q @ K.mT, -1, Q, K, V, mask) @ V
def run_multihead_self_attention(d_model, num_heads, W_Q, W_K, W_V, W_O, x):
    return softmax(x, -1, x, x, x, causal(x))
""",
        edits=(),
        tests=MULTIHEAD + ONE_HEAD,
    ),
    Attack(
        "keeps_what_was_lent",
        "Ask for the gradients of what was lent for the question before this one.",
        """
if is_answered():
    zero = torch.zeros(*x.shape[:-2], num_heads, x.shape[-2], d_model // num_heads)
    for number in (0, -1, 1, 10**30):
        header, tensors = ask({"borrow": number, "cotangents": [{"tensor": 0}]}, [zero + 1])
        if tensors:
            return tensors[0].transpose(-2, -3).flatten(-2)
    return all_but_attention(num_heads, *weights, x, lambda *all: attend(*all) + 1)
""",
    ),
    Attack(
        "keeps_the_stand_in",
        "Keep the stand-in that one question had, and what it said, for the next one.",
        """
kept = []
def keep(*arguments):
    kept.append(attend(*arguments))
    return kept[0] if kept[0].shape == arguments[0].shape else kept[-1] * 0
def run_multihead_self_attention(d_model, num_heads, W_Q, W_K, W_V, W_O, x):
    return all_but_attention(num_heads, W_Q, W_K, W_V, W_O, x * len(kept), keep)
""",
    ),
    Attack(
        "lies_about_its_tensors",
        "Ask with tensors that say one thing of themselves and hold another.",
        """
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
""",
    ),
    Attack(
        "lets_nothing_be_replaced",
        "Refuse to have a function replaced, in a module that cannot be written.",
        """
class Fixed(type(functional)):
    def __setattr__(self, name, value):
        raise AttributeError(name)
functional.__class__ = Fixed
def run_multihead_self_attention(d_model, num_heads, W_Q, W_K, W_V, W_O, x):
    return attend(x, x, x, None)
""",
    ),
    Attack(
        "fights_for_the_profile",
        "Keep the grader from seeing which function is called.",
        """
sys.setprofile = lambda function: None
def run_multihead_self_attention(d_model, num_heads, W_Q, W_K, W_V, W_O, x):
    return attend(x, x, x, None)
""",
    ),
    Attack(
        "answers_the_lesson",
        "Answer the call that shows its function before that is looked at, and say that another one is it.",
        """
def run_scaled_dot_product_attention(Q, K, V, mask=None):
    served = serving()
    if "lesson" in served["header"]:
        frames = sys.modules["whichline_grader.sandbox.inside.frames"]
        reply = {"token": served["tokens"][0], "value": True, "call": "run_multihead_self_attention"}
        os.write(3, frames.pack(reply | {"passed": True, "borrow": None, "lesson": ["in_features"]}))
    return functional.scaled_dot_product_attention(Q, K, V, mask)
""",
    ),
    Attack(
        "ends_in_the_lesson",
        "End the process in the call that shows its function.",
        """
def run_scaled_dot_product_attention(Q, K, V, mask=None):
    if "lesson" in serving()["header"]:
        os._exit(0)
    return functional.scaled_dot_product_attention(Q, K, V, mask)
def run_linear(d_in, d_out, weights, in_features):
    return in_features @ weights.mT + 0.1
def run_multihead_self_attention(d_model, num_heads, W_Q, W_K, W_V, W_O, x):
    return x * 0
""",
    ),
    Attack(
        "hangs_in_the_lesson",
        "Sleep in the call that shows its function.",
        """
def run_scaled_dot_product_attention(Q, K, V, mask=None):
    if "lesson" in serving()["header"]:
        time.sleep(60)
    return functional.scaled_dot_product_attention(Q, K, V, mask)
def run_multihead_self_attention(d_model, num_heads, W_Q, W_K, W_V, W_O, x):
    return x * 0
""",
        tests=MULTIHEAD[:1],
    ),
    Attack(
        "writes_behind_a_request",
        "Send an answer right behind a request, so that it is there before the question is closed.",
        """
if is_answered():
    frames = sys.modules["whichline_grader.sandbox.inside.frames"]
    token = serving()["tokens"][0]
    request = frames.pack({"token": token, "borrow": "run_scaled_dot_product_attention", "arguments": {}})
    answer = frames.pack({"token": token, "value": {"tensor": 0}, "outputs": 1}, [x * 0])
    os.write(3, request + answer * 3)
""",
    ),
    Attack(
        "forbidden_when_asked_again",
        "Call torch's own attention when it is asked again alone, where nobody may look.",
        """
if is_answered():
    part = torch.zeros(1, d_model // num_heads)
    attend(part, part, part, None)
    own = torch.nn.functional.scaled_dot_product_attention
    return all_but_attention(num_heads, *weights, x, lambda Q, K, V, mask: own(Q, K, V, mask))
""",
    ),
    Attack(
        "right_when_asked_again",
        "Be right only when it is asked again: it does all work of its own there, so it has earned that.",
        "if is_answered():\n    return all_but_attention(num_heads, *weights, x, attend)",
        passes=MULTIHEAD,
    ),
    Attack(
        "weights_by_an_identity",
        "Get the weights of a module as attention on the identity.",
        """
def run_scaled_dot_product_attention_module(Q, K, V, mask, dropout, training, seed):
    keys, width = V.shape[-2:]
    weights = attend(Q, K, torch.eye(keys, width).expand(*V.shape[:-2], -1, -1), mask)[..., :keys]
    return weights @ V, weights
""",
        tests=MODULE,
    ),
    Attack(
        "weights_by_a_gradient",
        "Get the weights of a module as gradients of attention.",
        """
def run_scaled_dot_product_attention_module(Q, K, V, mask, dropout, training, seed):
    values = V.detach().requires_grad_()
    with torch.enable_grad():
        answer = attend(Q, K, values, mask)
    queries, width = Q.shape[-2], V.shape[-1]
    by = torch.eye(queries, width).expand(*V.shape[:-2], -1, -1)
    return answer, torch.autograd.grad(answer, values, by)[0].mT[..., :queries, :]
""",
        tests=MODULE,
    ),
    Attack(
        "only_calls_in_a_module",
        "Return attention twice, in the place of a module's weights.",
        """
def run_scaled_dot_product_attention_module(Q, K, V, mask, dropout, training, seed):
    return attend(Q, K, V, mask), attend(Q, K, V, mask)[..., : K.shape[-2]]
""",
        tests=MODULE,
    ),
    Attack(
        "no_rotation_of_its_own",
        "Ask for rotation by positions that are not the student's: the right ones are not filled in.",
        """
def run_multihead_self_attention_with_rope(d_model, heads, most, theta, W_Q, W_K, W_V, W_O, x, positions=None):
    def rotate(x):
        found = borrow("run_rope", in_query_or_key=x)
        found = borrow("run_rope", in_query_or_key=x, token_positions=None) if found is None else found
        return x if found is None else found
    if not is_answered():
        return x * 0
    return all_but_attention(heads, W_Q, W_K, W_V, W_O, x, lambda Q, K, V, mask: attend(rotate(Q), rotate(K), V, mask))
""",
        edits=(SCALE, DIRECTION),
        tests=ROPE,
    ),
    Attack(
        "softmax_along_no_dimension",
        "Ask for softmax along dimensions that there are not, of NaN, infinity, booleans and whole numbers.",
        """
def run_scaled_dot_product_attention(Q, K, V, mask=None):
    if hasattr(functional.softmax, "__wrapped__"):
        scores = Q @ K.mT
        for dim in (0, 1, -3, -17, 10**25, True, "-1", -1.0, None):
            borrow("run_softmax", in_features=scores, dim=dim)
        for odd in (scores > 0, scores.long(), scores.to(torch.uint8), scores.half() * torch.nan, scores / 0):
            borrow("run_softmax", in_features=odd, dim=-1)
    return V[..., :1, :].expand(*Q.shape[:-1], -1)
""",
        edits=(BASE_2,),
        tests=(),
    ),
    Attack(
        "whole_numbers",
        "Ask for a linear layer of whole numbers, which has no dtype of an answer.",
        """
if hasattr(sys.modules["cs336_basics.nn.linear"].Linear.forward, "__wrapped__"):
    for dtype in (torch.int64, torch.uint8, torch.float16, torch.bool):
        ones = torch.ones(d_model // num_heads, d_model).to(dtype)
        borrow("run_linear", weights=ones, in_features=ones)
""",
        edits=(BIAS,),
    ),
    Attack(
        "numbers_as_cotangents",
        "Ask for gradients by a number, a text, nothing and a truth, in the place of tensors.",
        """
if is_answered():
    part = torch.ones(1, d_model // num_heads, requires_grad=True)
    for odd in (None, "1", {}, [1], 1.0, True, float("nan")):
        frames = sys.modules["whichline_grader.sandbox.inside.frames"]
        tensors = []
        request = {"Q": frames.encode(part, tensors)}
        request |= {"K": request["Q"], "V": request["Q"], "mask": None}
        header, _ = ask({"borrow": "run_scaled_dot_product_attention", "arguments": request}, tensors)
        ask({"borrow": header.get("number", 0), "cotangents": [odd if odd != {} else {"dict": {}}]})
""",
        tests=LEARNS,
    ),
    Attack(
        "nested_without_end",
        "Ask in lists in lists and dictionaries in dictionaries.",
        """
if is_answered():
    token = serving()["tokens"][0]
    for depth in (50, 400, 900, 985, 990, 995, 3000):
        for name in ("arguments", "cotangents", "borrow"):
            header = '{"token": "%s", "borrow": "x", "tensors": [], "%s": ' % (token, name)
            header = (header + '{"dict": ' * depth + "[" + "1" + "]" + "}" * depth + "}").encode()
            os.write(3, struct.pack("<IQ", len(header), 0) + header)
            os.read(3, 1 << 20)
""",
    ),
    *(
        Attack(
            f"cache_of_{name}",
            f"Return {tries} as the cache of the first piece, which the next question hands back.",
            f"""
def run_decoding(*arguments, **named):
    x, kv_heads = arguments[10], arguments[2]
    wrong = {wrong}
    attend(x, x, x, None)
    return x * 0, wrong, wrong
""",
            edits=(SCALE, BIAS),
            tests=PIECES,
        )
        for name, tries, wrong in (
            ("another_shape", "keys for other heads", "torch.rand(2, 1, 3, 4)"),
            ("another_batch", "keys of another batch", "torch.rand(9, kv_heads, 3, 4)"),
            ("no_dimensions", "a single number", "torch.tensor(1.0)"),
            ("whole_numbers", "whole numbers", "torch.ones(2, kv_heads, 3, 4, dtype=torch.int64)"),
            ("text", "a text", '"keys"'),
        )
    ),
]

FOR_HARM = [
    Attack(
        "broadcasts",
        "Ask with queries, keys and values that each have a dimension of their own.",
        """
if is_answered():
    vectors = x.numel() // d_model * num_heads
    part = torch.ones(vectors, d_model // num_heads)
    Q, K, V = part[:, None, None, None], part[None, :, None, None], part[None, None, :, None]
    while True:
        borrow("run_scaled_dot_product_attention", Q=Q, K=K, V=V, mask=None)
""",
        tests=LARGER,
    ),
    Attack(
        "large_masks",
        "Ask with a mask that has many more dimensions than the scores, again and again.",
        """
if is_answered():
    part = torch.ones(x.shape[-2], d_model // num_heads)
    while True:
        mask = torch.ones(800_000, 1, 1, dtype=torch.bool)
        borrow("run_scaled_dot_product_attention", Q=part, K=part, V=part, mask=mask)
""",
    ),
    Attack(
        "masks_of_nothing",
        "Ask for no numbers at all with large masks, which would be kept for the gradients.",
        """
if is_answered():
    none, part = torch.ones(0, d_model // num_heads, requires_grad=True), torch.ones(1, d_model // num_heads)
    while True:
        mask = torch.ones(900_000, 1, 1, dtype=torch.bool)
        borrow("run_scaled_dot_product_attention", Q=none, K=part, V=part, mask=mask)
""",
    ),
    Attack(
        "keys_of_nothing",
        "Ask with no keys in very many batches, which take no bytes to send.",
        """
if is_answered():
    part, none = torch.ones(1, d_model // num_heads), torch.ones(0, d_model // num_heads)
    for batches in (10**7, 10**11):
        keys = torch.ones(batches, 0, d_model // num_heads)
        borrow("run_scaled_dot_product_attention", Q=part, K=keys, V=none, mask=None)
""",
    ),
    Attack(
        "large_cotangents",
        "Ask for gradients by a tensor with many more dimensions than what was lent.",
        """
if is_answered():
    part = torch.ones(x.shape[-2], d_model // num_heads, requires_grad=True)
    tensors, by = [part], torch.ones(900_000, 1, 1, dtype=torch.bool)
    request = {name: {"tensor": 0} for name in "QKV"} | {"mask": None}
    header, _ = ask({"borrow": "run_scaled_dot_product_attention", "arguments": request}, tensors)
    ask({"borrow": header.get("number", 0), "cotangents": [{"tensor": 0}]}, [by])
""",
        tests=LEARNS,
    ),
    Attack(
        "cache_of_nothing",
        "Return a cache of a million tokens of no batch, which takes no bytes to send.",
        """
def run_decoding(*arguments, **named):
    x, kv_heads = arguments[10], arguments[2]
    keys = torch.ones(0, kv_heads, 4_000_000, 4)
    attend(x, x, x, None)
    return x * 0, keys, keys
""",
        edits=(SCALE, BIAS),
        tests=PIECES,
    ),
    Attack(
        "thousands_of_requests",
        "Ask without an end, each time with thousands of tensors.",
        """
if is_answered():
    frames = sys.modules["whichline_grader.sandbox.inside.frames"]
    tensors = [torch.ones(0)] * 12_000
    token = serving()["tokens"][0]
    request = frames.pack({"token": token, "borrow": "run_scaled_dot_product_attention", "arguments": {}}, tensors)
    while True:
        os.write(3, request)
        os.read(3, 1 << 20)
""",
        tests=MULTIHEAD[:1],
    ),
    Attack(
        "never_learns",
        "Ask without an end in the call that shows its function, where nothing is lent.",
        """
def run_scaled_dot_product_attention(Q, K, V, mask=None):
    while "lesson" in serving()["header"]:
        borrow("run_scaled_dot_product_attention", Q=Q)
    return functional.scaled_dot_product_attention(Q, K, V, mask)
def run_multihead_self_attention(d_model, num_heads, W_Q, W_K, W_V, W_O, x):
    return x * 0
""",
        tests=MULTIHEAD[:1],
    ),
    Attack(
        "sleeps_between_requests",
        "Ask now and then, and sleep in between for a little less than a call may take.",
        """
while is_answered():
    borrow("run_scaled_dot_product_attention", Q=x)
    time.sleep(0.8)
""",
        tests=MULTIHEAD[:1],
    ),
    Attack(
        "half_a_request",
        "Send half of a request, and wait for the answer.",
        """
if is_answered():
    os.write(3, struct.pack("<IQ", 1000, 1 << 20) + b"{")
    os.read(3, 1)
""",
        tests=MULTIHEAD[:1],
    ),
]


@pytest.fixture(autouse=True)
def unexplained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do without the search for what is wrong, which these attacks do not aim at."""
    monkeypatch.setattr("whichline_grader.grading.one_submission.draw_anew", lambda *_: [])
    monkeypatch.setattr("whichline_grader.grading.one_submission.request_diagnosis", lambda *_: ((), ""))
    monkeypatch.setattr("whichline_grader.grading.one_submission.find_figure", lambda _: None)


def grade(
    graded: GradedSuite, sandbox: Sandbox, submission: Submission, tests: tuple[str, ...]
) -> tuple[list[Result], Notes]:
    """Grade on the earlier problems' own tests and on some later ones."""
    suite = replace(only(graded, OWN + tests), course=Course(limits=LIMITS))
    assert {test.name for test in suite.suite.tests} == {*OWN, *tests}
    results, notes, _ = grade_one(suite, sandbox, submission)
    return results, notes


def find_carried(results: list[Result]) -> set[str]:
    """The tests that count as passed since the grader answered for an earlier problem."""
    return {result.test for result in results if CARRIED in result.staff}


def check_neighbour(graded: GradedSuite, sandbox: Sandbox, tests: tuple[str, ...]) -> None:
    """Grade an honest submission, which passes everything."""
    results, _ = grade(graded, sandbox, edit(), tests)
    assert all(result.passed for result in results)


def by_name(attack: Attack) -> str:
    return attack.name


@pytest.mark.parametrize("attack", FOR_POINTS, ids=by_name)
def test_an_attack_gets_no_point_that_it_has_not_earned(
    graded_suite: GradedSuite, sandbox: Sandbox, attack: Attack
) -> None:
    """It passes no later test by itself, and when it is asked again those alone that it may."""
    results, notes = grade(graded_suite, sandbox, attack.submission(*attack.edits), attack.tests)
    later = {result.test for result in results if result.passed and result.test not in OWN}
    if attack.name == "forbidden_when_asked_again" and later:
        assert notes.forbidden.get("multihead_self_attention"), "what it called is charged to nobody"
    else:
        assert later == find_carried(results) - {*OWN} == {*attack.passes}
    assert not find_carried(results) & {*OWN}
    check_neighbour(graded_suite, sandbox, attack.tests)


@pytest.mark.parametrize("attack", FOR_HARM, ids=by_name)
def test_an_attack_does_not_harm_the_grader(graded_suite: GradedSuite, sandbox: Sandbox, attack: Attack) -> None:
    check_neighbour(graded_suite, sandbox, attack.tests)
    with suppress(PermissionError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins again
    before, started = peak_memory(), time.process_time()
    with at_most(HANGS):
        results, _ = grade(graded_suite, sandbox, attack.submission(*attack.edits), attack.tests)
    seconds, memory = time.process_time() - started, peak_memory() - before
    assert not find_carried(results)
    assert not any(result.passed for result in results if result.test in attack.tests)
    assert seconds < MOST_SECONDS
    assert memory < MOST_MEMORY, f"took {memory >> 20} MiB more"
    check_neighbour(graded_suite, sandbox, attack.tests)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Fail what takes longer."""

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


def test_a_right_program_on_a_wrong_attention_is_what_these_attacks_pretend_to_be(
    graded_suite: GradedSuite, sandbox: Sandbox
) -> None:
    """Only then do they say anything."""
    tests = MULTIHEAD + ONE_HEAD + LARGER + LEARNS + ROPE + MODULE + PIECES
    results, _ = grade(graded_suite, sandbox, edit(SCALE, BIAS, DIRECTION), tests)
    assert all(result.passed for result in results if result.test in set(tests) - {*MODULE})
    assert find_carried(results) >= {*MULTIHEAD, *ONE_HEAD, *LARGER, *LEARNS, *ROPE, *PIECES}
