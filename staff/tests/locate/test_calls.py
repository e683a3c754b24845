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
BINDS_LATE = (f"q, k, v = ({SPLIT})", f"heads = [lambda: {SPLIT}]\n    q, k, v = (each() for each in heads)")
IN_PLACE = [
    ("        return turned\n", "        x.copy_(turned)\n"),
    ("        q, k = turn(q), turn(k)", "        turn(q), turn(k)"),
    ("return Rotation(d_k, theta, max_seq_len)(in_query_or_key, token_positions)",
     "x = in_query_or_key.clone()\n    Rotation(d_k, theta, max_seq_len)(x, token_positions)\n    return x"),
]  # fmt: skip


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


def test_a_wrong_function_is_entered_by_the_tests_of_another_problem(find_alone: Explain) -> None:
    (finding,) = find_alone(ATTENTION, NOT_STABLE)
    assert list_marks([finding]) == ["x"]
    assert finding.said == ("Expected x − max; found x. Line 12 computes the maximum along `dim`; nothing uses it.",)
    assert (finding.problem, finding.step) == (ATTENTION, "x − max")
    assert finding.proof.startswith("With x − max here, ")


@pytest.mark.parametrize(
    "beside",
    [(), *(pytest.param((each,), marks=pytest.mark.nightly) for each in (LOW, NOT_STABLE, HALF))],
    ids=["alone", "-1e9", "no maximum", "half"],
)
def test_positions_that_are_ignored_are_named_whatever_else_is_wrong(find_alone: Explain, beside: tuple) -> None:
    found = find_alone(MULTIHEAD, ROW_NUMBERS, *beside)
    assert "torch.arange(x.shape[-2])" in list_marks(found)
    assert not {"rotation", "positions"} & {*list_marks(found)}


def test_a_number_that_a_right_function_got_in_the_place_of_another_is_told(find_alone: Explain) -> None:
    (finding,) = find_alone(MULTIHEAD, FIXED_THETA)
    assert list_marks([finding]) == [FIXED_THETA[1]]
    assert finding.said == ("Expected `theta`, 100; found 10000.",)
    assert finding.proof == "With this corrected, the failing test passes."


def test_the_call_is_told_that_passes_the_number_on_last(find_alone: Explain) -> None:
    """The adapter passes the right one to an object, in which another is made without it."""
    made = "Rotation(d, 10000.0, longest)"
    holder = f"class Holder:\n    def __init__(self, d, theta, longest):\n        self.turn = {made}\n\n\n"
    above = ("def attend_by_heads", f"{holder}def attend_by_heads")
    turn = (FIXED_THETA[0], "Holder(d_model // num_heads, theta, max_seq_len).turn")
    (finding,) = find_alone(MULTIHEAD, above, turn)
    assert list_marks([finding]) == [made]


def test_the_call_is_told_that_leaves_a_number_at_its_default(find_alone: Explain) -> None:
    edits = ("def __init__(self, d, theta, longest)", "def __init__(self, d, longest, theta=10000.0)")
    rope = ("Rotation(d_k, theta, max_seq_len)", "Rotation(d_k, max_seq_len, theta)")
    (finding,) = find_alone(MULTIHEAD, edits, rope, (MADE.format("theta"), MADE.format("theta").replace("theta, ", "")))
    assert list_marks([finding]) == ["Rotation(d_model // num_heads, max_seq_len)"]
    (said,) = finding.said
    assert said == "Expected `theta`, 100; found 10000. This call passes nothing for `theta`."


def test_the_argument_is_told_that_a_right_function_uses_as_an_index(find_alone: Explain) -> None:
    """The table that is looked into is no proof: its rows are right, but others."""
    looks = "cos, sin = self.cos[positions].to(x.dtype), self.sin[positions].to(x.dtype)\n"
    look = (
        f"    def __call__(self, x, positions):\n        {looks}",
        """    def look(self, rows):
        return self.cos[rows], self.sin[rows]

    def __call__(self, x, positions):
        return self.turn(x, *self.look(positions))

    def turn(self, x, cos, sin):
        cos, sin = cos.to(x.dtype), sin.to(x.dtype)
""",
    )
    rows = ("    weights = q_proj", "    rows = torch.arange(in_features.shape[-2])\n    weights = q_proj")
    mask = "dtype=torch.bool).tril()"
    masks = (mask, f"{mask} if rows is None else rows[:, None] >= rows")
    takes = ("num_heads, turn=None):", "num_heads, turn=None, rows=None):")
    turns = (TURN, "lambda x: rotation.turn(x, *rotation.look(rows)), rows)")
    (finding,) = find_alone(MULTIHEAD, look, rows, masks, takes, turns)
    assert list_marks([finding]) == ["rows"]
    assert finding.proof == "With another name here, all 8 failing tests pass."


@pytest.mark.parametrize("part", [0, 1])
def test_a_function_that_returns_more_than_the_adapter_is_judged_as_a_whole(find_alone: Explain, part: int) -> None:
    both = "output, weights" if part == 0 else "weights, output"
    body = f"{BODY.replace('return (weights', 'output = (weights')}    return {both}\n"
    edits = (DEFINES + BODY, f"def mix(Q, K, V, mask):\n{body}\n\n{DEFINES}    return mix(Q, K, V, mask)[{part}]\n")
    (finding,) = find_alone(MULTIHEAD, edits, (HEADS, f"mix(q, k, v, ~mask)[{part}]"))
    assert finding.function == "attend_by_heads"
    (finding,) = find_alone(MULTIHEAD, edits, (HEADS, f"mix(q, k, v, mask)[{part}]"), NO_SCALE)
    assert finding.said == ("Expected the scaled scores; found the scores.",)


def test_of_two_mistakes_in_two_functions_each_is_searched_in_its_own(find_alone: Explain) -> None:
    scale, positions = find_alone(MULTIHEAD, NO_SCALE, ROW_NUMBERS)
    assert scale.said == ("Expected the scaled scores; found the scores.",)
    assert list_marks([positions]) == ["torch.arange(x.shape[-2])"]
    assert positions.proof.startswith("With these two corrected, ")


def test_a_variable_that_all_functions_of_a_loop_share_is_named(find_alone: Explain) -> None:
    (finding,) = find_alone(MULTIHEAD, BINDS_LATE)
    assert list_marks([finding]) == ["w"]
    assert finding.said[0].endswith("; found the weights of the values, head by head.")


AT_EACH_CHANGE = ("another order", "a module", "a closure")


@pytest.mark.parametrize(
    "style", [pytest.param(each, marks=() if each in AT_EACH_CHANGE else pytest.mark.nightly) for each in STYLES]
)
def test_a_function_is_known_by_its_tensors(find_alone: Explain, style: str) -> None:
    """Its own mistake is told as its own, and a call with the keys for the queries as the caller's."""
    (finding,) = find_alone(MULTIHEAD, *write_in_style(style), NO_SCALE)
    assert finding.said == ("Expected the scaled scores; found the scores.",)
    (finding,) = find_alone(MULTIHEAD, *write_in_style(style, "kqv"))
    assert finding.said[0].endswith("the two are swapped."), finding.said
    assert STYLES[style][1].format(*"kqv", "mask") in finding.code[1]


def test_a_call_with_none_in_the_place_of_a_tensor_is_no_error_of_ours(find_alone: Explain) -> None:
    finding, *_ = find_alone(MULTIHEAD, ("        return turned\n", ""))
    assert finding.said[0] == "AttributeError: 'NoneType' object has no attribute 'dtype'"


def test_a_function_that_changes_its_argument_is_searched_like_other_code(find_alone: Explain) -> None:
    (finding,) = find_alone(MULTIHEAD, *IN_PLACE, NO_SCALE)
    assert finding.said == ("Expected the scaled scores; found the scores.",)


def test_a_function_that_is_wrong_where_it_does_not_matter_is_not_told(find_alone: Explain) -> None:
    """Attention puts 0 where softmax gives NaN, and is divided by the wrong number."""
    guarded = (WEIGHTS, f"{WEIGHTS}\n    weights = torch.where(weights.isnan(), 0.0, weights)")
    (finding,) = find_alone(ATTENTION, UNGUARDED, guarded, NO_SCALE)
    assert finding.said == ("Expected the scaled scores; found the scores.",)


def test_a_wrong_function_is_told_where_the_tests_fail_for_another_reason_too(find_alone: Explain) -> None:
    wide = "    wide = torch.promote_types(Q.dtype, torch.float32)\n"
    beside = (wide, f"    Q, K = Q.cumsum(-1) + Q.flip(-1), K.cumsum(-2) * K\n{wide}")
    first, *_ = find_alone(ATTENTION, NOT_STABLE, beside)
    assert first.said == ("Expected x − max; found x. Line 12 computes the maximum along `dim`; nothing uses it.",)
    also = "the tests also fail for another reason."
    assert first.proof == f"With this corrected, every call of this function is right; {also}"


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


SETTINGS = ("import torch\n", "import dataclasses\n\nimport torch\n")
CONFIGURED = above(
    "def run_multihead_self_attention_with_rope",
    "@dataclasses.dataclass\nclass Settings:\n    longest: int\n    theta: float = 10000.0",
)


def test_the_settings_are_marked_that_leave_a_number_at_its_default(find_alone: Explain) -> None:
    """They are no value that a probe records; only the number that is read from them is."""
    made = (
        f"rotation = {MADE.format('theta')}\n    positions =",
        f"config = Settings(max_seq_len)\n    rotation = {MADE.format('config.theta')}\n    positions =",
    )
    (finding,) = find_alone(MULTIHEAD, SETTINGS, CONFIGURED, made)
    assert list_marks([finding]) == ["Settings(max_seq_len)"]
    assert finding.said == ("Expected `theta`, 100; found 10000. This call passes nothing for `theta`.",)


def test_the_classes_of_exceptions_have_no_parameters_to_pass(find_alone: Explain) -> None:
    error = above("def scores_of", "class Refused(ValueError):\n    pass")
    raised = (
        "    d_k = Q.shape[-1]\n",
        "    d_k = Q.shape[-1]\n    if K.shape[-1] != d_k:\n        raise Refused(d_k)\n",
    )
    (finding,) = find_alone(ATTENTION, error, raised, ("math.sqrt(d_k)", "d_k"))
    assert list_marks([finding]) == ["d_k"]


def test_a_call_is_repaired_that_should_pass_an_option(find_alone: Explain) -> None:
    body = "    mask = torch.ones(length, length, dtype=torch.bool)\n    return mask.tril() if causal else mask"
    mask = above("def attend_by_heads", f"def make_mask(length, causal=False):\n{body}")
    (finding,) = find_alone(
        MULTIHEAD, mask, ("torch.ones(length, length, dtype=torch.bool).tril()", "make_mask(length)")
    )
    assert list_marks([finding]) == ["make_mask(length)"]
    assert finding.said == ("This call passes nothing for `causal`.",)
    assert finding.proof == "With one more argument here, all 20 failing tests pass."


def test_of_two_calls_the_one_is_marked_that_passes_fewer_arguments(find_alone: Explain) -> None:
    default = (
        "def __call__(self, x, positions):\n",
        "def __call__(self, x, positions=None):\n"
        "        positions = torch.arange(x.shape[-2]) if positions is None else positions\n",
    )
    turned = ("q, k = turn(q), turn(k)", "q, k = turn[0](q, turn[1]), turn[0](k)")
    (finding,) = find_alone(MULTIHEAD, default, (TURN, "(rotation, positions))"), turned)
    assert list_marks([finding]) == ["turn[0](k)"]


def test_a_right_function_is_no_proof_where_its_arguments_are_wrong(find_alone: Explain) -> None:
    keys = (
        f"q, k, v = ({SPLIT})",
        f"q, k, v = ({SPLIT.replace('weights[:3]', '(weights[0], weights[1], weights[1])')})",
    )
    found = find_alone(MULTIHEAD, keys, (".tril()\n", ".tril(-1)\n"))
    assert "torch.ones(length, length, dtype=torch.bool).tril(-1)" in list_marks(found)
    assert not any(HEADS in mark for mark in list_marks(found))
