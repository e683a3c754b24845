"""Right or wrong, call by call: which functions are entered, and what is told of the calls of right ones."""

import textwrap
from unittest.mock import Mock

import pytest

from staff.tests.locate.conftest import Explain, above, marked
from whichline.engine.finding import Finding

ATTENTION, MULTIHEAD = "scaled_dot_product_attention", "multihead_self_attention"
NO_SCALE = (" / math.sqrt(d_k)", "")
LOW = ("-math.inf)\n    return", "-1e9)\n    return")
NOT_STABLE = ("torch.exp(x - largest)", "torch.exp(x)")
HALF = ("x = in_features.to(torch.promote_types(in_features.dtype, torch.float32))", "x = in_features")
WEIGHTS = "weights = run_softmax(scores_of(Q.to(wide), K.to(wide), mask), -1)"
UNGUARDED = ("    largest = torch.where(largest == -math.inf, 0.0, largest)\n", "")
TURN = "lambda x: rotation(x, positions))"
ROW_NUMBERS = (TURN, "lambda x: rotation(x, torch.arange(x.shape[-2])))")
MADE = "Rotation(d_model // num_heads, {}, max_seq_len)"
FIXED_THETA = (MADE.format("theta"), MADE.format("10000.0"))
SPLIT = 'rearrange(x @ w.T, "... n (h d) -> ... h n d", h=num_heads) for w in weights[:3]'
IN_PLACE = [
    ("        return turned\n", "        x.copy_(turned)\n"),
    ("        q, k = turn(q), turn(k)", "        turn(q), turn(k)"),
    ("return Rotation(d_k, theta, max_seq_len)(in_query_or_key, token_positions)",
     "x = in_query_or_key.clone()\n    Rotation(d_k, theta, max_seq_len)(x, token_positions)\n    return x"),
]  # fmt: skip
NOT_SCALED = "Expected the scaled scores; found the scores."

DEFINES = "def run_scaled_dot_product_attention(Q, K, V, mask=None):\n"
BODY = """    wide = torch.promote_types(Q.dtype, torch.float32)
    weights = run_softmax(scores_of(Q.to(wide), K.to(wide), mask), -1)
    return (weights @ V.to(wide)).to(Q.dtype)
"""
INNER = textwrap.indent(BODY, "    ")
HEADS = "run_scaled_dot_product_attention(q, k, v, mask)"
IN_ORDER = "({0}, {1}, {2}, {3})"
# Styles of an attention with another name: how it reads, and how it is called with queries, keys, values and a mask.
STYLES = {
    "a function": (f"def mix(Q, K, V, mask):\n{BODY}", "mix" + IN_ORDER),
    "another order": (f"def mix(mask, K, Q, V):\n{BODY}", "mix({3}, {1}, {0}, {2})"),
    "keywords": (f"def mix(*, V, mask, K, Q):\n{BODY}", "mix(Q={0}, K={1}, V={2}, mask={3})"),
    "a static method": (f"class Mix:\n    @staticmethod\n    def mix(Q, K, V, mask):\n{INNER}", "Mix.mix" + IN_ORDER),
    "a module": (f"class Mix(torch.nn.Module):\n    def forward(self, Q, K, V, mask):\n{INNER}", "Mix()" + IN_ORDER),
    "a closure": (f"def make():\n    def mix(Q, K, V, mask):\n{INNER}    return mix\n", "make()" + IN_ORDER),
    "other names": (f"def mix(a, b, c, keep):\n    Q, K, V, mask = a, b, c, keep\n{BODY}", "mix" + IN_ORDER),
}


def write_in_style(style: str, heads: str = "qkv") -> list[tuple[str, str]]:
    """An attention with another name; the heads call it with these."""
    text, call = STYLES[style]
    own = f"{text}\n\n{DEFINES}    return {call.format('Q', 'K', 'V', 'mask')}\n"
    return [(DEFINES + BODY, own), (HEADS, call.format(*heads, "mask"))]


def list_marks(found: list[Finding]) -> list[str]:
    """What is marked in each finding that has a place."""
    return [marked(each) for each in found if each.file]


SCORES = 'einsum(Q, K, "... q d, ... k d -> ... q k")'
THETA, CORRECTED = "Expected `theta`, 100; found 10000.", "With this corrected, the failing test passes."
NO_THETA = f"{THETA} This call passes nothing for `theta`."
NO_MAXIMUM = "Expected x − max; found x. Line 12 computes the maximum along `dim`; nothing uses it."
ELSE = "With this corrected, every call of this function is right; the tests also fail for another reason."
LATE = "Expected the weights of the queries, head by head; found the weights of the values, head by head."
WIDE = "    wide = torch.promote_types(Q.dtype, torch.float32)\n"
MASK, CALL = "torch.ones(length, length, dtype=torch.bool).tril()", "    def __call__(self, x, positions"
HOLDER = """class Holder:
    def __init__(self, d, theta, longest):
        self.turn = Rotation(d, 10000.0, longest)"""
OPTION = """def make_mask(length, causal=False):
    mask = torch.ones(length, length, dtype=torch.bool)
    return mask.tril() if causal else mask"""
SETTINGS = "@dataclasses.dataclass\nclass Settings:\n    longest: int\n    theta: float = 10000.0"
ROWS = "        positions = torch.arange(x.shape[-2]) if positions is None else positions\n"
LOOKS = "        cos, sin = self.cos[positions].to(x.dtype), self.sin[positions].to(x.dtype)\n"
LOOK = """    def look(self, rows):
        return self.cos[rows], self.sin[rows]

    def __call__(self, x, positions):
        return self.turn(x, *self.look(positions))

    def turn(self, x, cos, sin):
        cos, sin = cos.to(x.dtype), sin.to(x.dtype)
"""

# For each mistake: the problem, what is marked, what is said, the proof if it matters, and the edits.
MISTAKES: dict[str, tuple[tuple[str, ...], ...]] = {
    "a wrong function that the tests of another problem run": (
        (ATTENTION, "x", NO_MAXIMUM, "With x − max here, all 3 failing tests pass."),
        NOT_STABLE,
    ),
    "a wrong function, where the tests fail for another reason, too": (
        (ATTENTION, "x", NO_MAXIMUM, ELSE),
        NOT_STABLE,
        (WIDE, f"    Q, K = Q.cumsum(-1) + Q.flip(-1), K.cumsum(-2) * K\n{WIDE}"),
    ),
    "a number in the place of another": ((MULTIHEAD, FIXED_THETA[1], THETA, CORRECTED), FIXED_THETA),
    # The adapter passes the right one to an object, in which another is made without it.
    "a call that passes a number on last": (
        (MULTIHEAD, "Rotation(d, 10000.0, longest)", THETA),
        above("def attend_by_heads", HOLDER),
        (FIXED_THETA[0], "Holder(d_model // num_heads, theta, max_seq_len).turn"),
    ),
    "a call that leaves a number at its default": (
        (MULTIHEAD, "Rotation(d_model // num_heads, max_seq_len)", NO_THETA),
        ("def __init__(self, d, theta, longest)", "def __init__(self, d, longest, theta=10000.0)"),
        ("Rotation(d_k, theta, max_seq_len)", "Rotation(d_k, max_seq_len, theta)"),
        (FIXED_THETA[0], "Rotation(d_model // num_heads, max_seq_len)"),
    ),
    # They are no value that a probe records; only the number that is read from them is.
    "settings that leave a number at its default": (
        (MULTIHEAD, "Settings(max_seq_len)", NO_THETA),
        ("import torch\n", "import dataclasses\n\nimport torch\n"),
        above("def run_multihead_self_attention_with_rope", SETTINGS),
        (FIXED_THETA[0], MADE.format("config.theta")),
        ("    rotation = Ro", "    config = Settings(max_seq_len)\n    rotation = Ro"),
    ),
    # The table that is looked into is no proof: its rows are right, but others.
    "an argument that a right function uses as an index": (
        (
            MULTIHEAD,
            "rows",
            "The answer is wrong in 8 of the 22 stored cases.",
            "With another name here, all 8 failing tests pass.",
        ),
        (f"{CALL}):\n{LOOKS}", LOOK),
        ("    weights = q_proj", "    rows = torch.arange(in_features.shape[-2])\n    weights = q_proj"),
        (MASK, f"{MASK} if rows is None else rows[:, None] >= rows"),
        ("num_heads, turn=None):", "num_heads, turn=None, rows=None):"),
        (TURN, "lambda x: rotation.turn(x, *rotation.look(rows)), rows)"),
    ),
    "a variable that all functions of a loop share": (
        (MULTIHEAD, "w", LATE),
        (f"q, k, v = ({SPLIT})", f"heads = [lambda: {SPLIT}]\n    q, k, v = (each() for each in heads)"),
    ),
    "a call that should pass an option": (
        (
            MULTIHEAD,
            "make_mask(length)",
            "This call passes nothing for `causal`.",
            "With one more argument here, all 20 failing tests pass.",
        ),
        above("def attend_by_heads", OPTION),
        (MASK, "make_mask(length)"),
    ),
    "of two calls the one that passes fewer arguments": (
        (MULTIHEAD, "turn[0](k)", "Expected the positions, for every head; found that value minus 17."),
        (f"{CALL}):\n", f"{CALL}=None):\n{ROWS}"),
        (TURN, "(rotation, positions))"),
        ("q, k = turn(q), turn(k)", "q, k = turn[0](q, turn[1]), turn[0](k)"),
    ),
    # The classes of exceptions have no parameters to pass.
    "a number, where the code has a class of exceptions": (
        (ATTENTION, "d_k", "Expected √d_k; found d_k."),
        above("def scores_of", "class Refused(ValueError):\n    pass"),
        ("    scores = ein", "    if K.shape[-1] != d_k:\n        raise Refused(d_k)\n    scores = ein"),
        ("math.sqrt(d_k)", "d_k"),
    ),
    "a function that changes its argument": ((MULTIHEAD, SCORES, NOT_SCALED), *IN_PLACE, NO_SCALE),
    # Attention puts 0 where softmax gives NaN, and is divided by the wrong number.
    "a function that is wrong where it does not matter": (
        (ATTENTION, SCORES, NOT_SCALED),
        UNGUARDED,
        (WEIGHTS, f"{WEIGHTS}\n    weights = torch.where(weights.isnan(), 0.0, weights)"),
        NO_SCALE,
    ),
}


@pytest.mark.parametrize(("told", "edits"), [(told, edits) for told, *edits in MISTAKES.values()], ids=MISTAKES)
def test_the_one_place_is_told(find_alone: Explain, told: tuple[str, ...], edits: list[tuple[str, str]]) -> None:
    problem, mark, said, *proof = told
    (finding,) = find_alone(problem, *edits)
    assert (finding.problem, marked(finding), finding.said) == (problem, mark, (said,))
    assert not proof or [finding.proof] == proof


@pytest.mark.parametrize(
    "beside",
    [(), *(pytest.param((each,), marks=pytest.mark.nightly) for each in (LOW, NOT_STABLE, HALF))],
    ids=["alone", "-1e9", "no maximum", "half"],
)
def test_positions_that_are_ignored_are_named_whatever_else_is_wrong(find_alone: Explain, beside: tuple) -> None:
    found = find_alone(MULTIHEAD, ROW_NUMBERS, *beside)
    assert "torch.arange(x.shape[-2])" in list_marks(found)
    assert not {"rotation", "positions"} & {*list_marks(found)}


@pytest.mark.parametrize("part", [0, 1])
def test_a_function_that_returns_more_than_the_adapter_is_judged_as_a_whole(find_alone: Explain, part: int) -> None:
    both = "output, weights" if part == 0 else "weights, output"
    body = f"{BODY.replace('return (weights', 'output = (weights')}    return {both}\n"
    edits = (DEFINES + BODY, f"def mix(Q, K, V, mask):\n{body}\n\n{DEFINES}    return mix(Q, K, V, mask)[{part}]\n")
    (finding,) = find_alone(MULTIHEAD, edits, (HEADS, f"mix(q, k, v, ~mask)[{part}]"))
    assert finding.function == "attend_by_heads"
    (finding,) = find_alone(MULTIHEAD, edits, (HEADS, f"mix(q, k, v, mask)[{part}]"), NO_SCALE)
    assert finding.said == (NOT_SCALED,)


def test_of_two_mistakes_in_two_functions_each_is_searched_in_its_own(find_alone: Explain) -> None:
    scale, positions = find_alone(MULTIHEAD, NO_SCALE, ROW_NUMBERS)
    assert scale.said == (NOT_SCALED,)
    assert list_marks([positions]) == ["torch.arange(x.shape[-2])"]
    assert positions.proof.startswith("With these two corrected, ")


AT_EACH_CHANGE = ("another order", "a module", "a closure")


@pytest.mark.parametrize(
    "style", [pytest.param(each, marks=() if each in AT_EACH_CHANGE else pytest.mark.nightly) for each in STYLES]
)
def test_a_function_is_known_by_its_tensors(find_alone: Explain, style: str) -> None:
    """Its own mistake is told as its own, and a call with the keys for the queries as the caller's."""
    (finding,) = find_alone(MULTIHEAD, *write_in_style(style), NO_SCALE)
    assert finding.said == (NOT_SCALED,)
    (finding,) = find_alone(MULTIHEAD, *write_in_style(style, "kqv"))
    assert finding.said[0].endswith("the two are swapped."), finding.said
    assert STYLES[style][1].format(*"kqv", "mask") in finding.code[1]


def test_no_tensor_where_one_is_expected_is_no_error_of_ours(find_alone: Explain) -> None:
    nothing, *_ = find_alone(MULTIHEAD, ("        return turned\n", ""))
    assert nothing.said[0] == "AttributeError: 'NoneType' object has no attribute 'dtype'"
    steps = "(scores_of(Q, K, mask), lambda x: x - 1, lambda x: partial(run_softmax, dim=-1), lambda w: w @ V)"
    chain = BODY, f"    return reduce(lambda x, step: step(x), {steps})\n"
    (function,) = find_alone(
        ATTENTION, ("import math\n", "import math\nfrom functools import partial, reduce\n"), chain
    )
    assert function.said[0].startswith("TypeError: unsupported operand type(s) for @: 'functools.partial' and 'Tensor'")


def test_an_error_of_ours_while_a_call_is_judged_is_none_of_the_students(
    find_alone: Explain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whichline.locate.calls.judge", Mock(side_effect=KeyError("judge")))
    with pytest.raises(KeyError, match="judge"):
        find_alone(ATTENTION, NO_SCALE)


UP = """def up(x):
    return x.to(torch.promote_types(x.dtype, torch.float32))


def soft(x, dim):
"""
HELPED = [
    ("def run_softmax(in_features, dim):\n    " + HALF[0] + "\n", UP),
    ("1.0, total)).to(in_features.dtype)\n", "1.0, total))\n\n\n"
     "def run_softmax(in_features, dim):\n    return soft(up(in_features), dim).to(in_features.dtype)\n"),
    ("weights @ V.to(wide)", "weights @ up(V)"),
    ("run_softmax(scores_of(Q.to(wide), K.to(wide), mask), -1)", "soft(scores_of(up(Q), up(K), mask), -1)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("edits", "lines"),
    [
        ([NO_SCALE, NOT_STABLE], [16, 16, 27]),
        ([("~mask", "mask"), NOT_STABLE], [16, 16, 29]),
        ([("amax(dim", "amax(0"), NO_SCALE], [14, 14, 27]),
    ],
    ids=["no scale", "an inverted mask", "the maximum of another axis"],
)
def test_a_helper_that_gets_the_inputs_first_does_not_do_the_work_of_the_adapter(
    find: Explain, edits: list[tuple[str, str]], lines: list[int]
) -> None:
    """In 16 `exp(x)`, in 14 the maximum, in 27 the scores, in 29 the mask; nothing in 36, `up(V)`."""
    assert [x.line for x in find(["softmax", ATTENTION], *HELPED, *edits) if x.code] == lines


def test_an_adapter_that_no_failing_test_runs_is_not_told(find_alone: Explain) -> None:
    """With the wrong axis a softmax gets slices of nothing but −inf, which no test of its own has."""
    own = (
        "def run_softmax(in_features, dim):\n    x = in_features",
        "def run_softmax(in_features, dim):\n    return soft(in_features, dim)\n\n\n"
        "def soft(in_features, dim):\n    x = in_features",
    )
    divided = ("e / torch.where(total == 0, 1.0, total)", "e / total")
    called = (
        WEIGHTS,
        "scores = scores_of(Q.to(wide), K.to(wide), mask)\n"
        "    if mask is not None:\n"
        "        scores = scores_of(Q.to(wide), K.to(wide), mask | ~mask.any(-1, keepdim=True))\n"
        "    weights = soft(scores, 1)\n"
        "    weights = weights if mask is None else weights * mask.any(-1, keepdim=True)",
    )
    found = find_alone(ATTENTION, own, UNGUARDED, divided, called)
    assert [each for each in list_marks(found) if "soft" in each] == ["soft(scores, 1)"]


def test_a_right_function_is_no_proof_where_its_arguments_are_wrong(find_alone: Explain) -> None:
    keys = ("for w in weights[:3]", "for w in (weights[0], weights[1], weights[1])")
    found = find_alone(MULTIHEAD, keys, (".tril()\n", ".tril(-1)\n"))
    assert "torch.ones(length, length, dtype=torch.bool).tril(-1)" in list_marks(found)
    assert not any(HEADS in mark for mark in list_marks(found))
