"""Repairs: the one small change of the code with which failing tests pass, where no value shows the place."""

import ast
import itertools
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from staff.tests.locate.conftest import RIGHT, ROPE, Explain, above
from staff.tests.locate.test_calls import MULTIHEAD, list_marks
from whichline.locate import changes
from whichline.locate.changes import Changes
from whichline.locate.instrument import PROBE
from whichline.locate.mutants import EXCHANGED, Mutable

SOLVE = "def solve(a, b, c):\n    return a + 10 * b + 100 * c\n"


def make_changes(
    alike: Collection[str] = (),
    is_counted: bool = True,
    masks: Sequence[str] = (),
    unread: Collection[str] = (),
    factors: Sequence[str] = (),
    defaults: Mapping[str, object] | None = None,
    is_backward: bool = False,
) -> Changes:
    calls = {"solve": [call for call in ast.walk(ast.parse("solve(1, 5, 7)")) if isinstance(call, ast.Call)]}
    return Changes(
        lambda name, _: [each for each in alike if name in alike and each != name],
        {"solve": ["a", "b", "c"]},
        ["math"],
        lambda _: is_counted,
        lambda _: ["b"],
        lambda _: masks,
        ["c"],
        ["str"],
        calls,
        unread,
        [],
        lambda _: factors,
        lambda _: defaults or {},
        is_backward,
    )


def list_answers(source: str, *args: Any, alike: Collection[str] = ("a", "c[0]", "1"), **given: Any) -> dict[Any, str]:
    """Return the answers of all mutants of `f`, each with its words; `make_changes` also gets what is `given`."""
    tree = ast.parse(source)
    mutable = Mutable(tree, "f")
    answers: dict[Any, str] = {}
    inside = ast.walk(ast.Module([mutable.function, *ast.parse("3 * (a - 1)").body], []))
    changes_of_it = replace(make_changes(alike, unread=mutable.unread, **given), inside=[*inside])
    for mutant in [*mutable.list_mutants(changes_of_it), *mutable.list_exchanges()]:
        names: dict[str, Any] = {"math": math, "bernoulli": lambda share: share, "gelu": gelu}
        exec(compile(tree, "f.py", "exec"), names)  # noqa: S102 (the program of a test)
        if code := mutable.compile(mutant, "f.py"):
            names["f"].__code__ = code
            try:
                answers.setdefault(names["f"](*args), mutant.words)
            except Exception:  # noqa: S112 (a mutant may raise anything)
                continue
    return answers


def gelu(x: int, approximate: str = "none") -> int:
    return x + (approximate == "tanh")


@pytest.mark.parametrize(
    ("body", "arguments", "right", "words"),
    [
        ("return a - b", (7, 2), 9, changes.OPERATOR),
        ("return a - b", (7, 2), -5, changes.SIDES),
        ("return a % b", (7, 2), 3, changes.OPERATOR),
        ("return a * b + a", (7, 2), 14, changes.NOTHING),
        ("return a + b * 6", (4, 7), 31, changes.MOVED),
        ("return a < b", (2, 2), True, changes.COMPARISON),
        ("return a and b", (0, 2), 2, changes.OPERATOR),
        ("return -a + b * 0", (7, 2), 7, changes.SIGN),
        ("return (a, b)", (7, 2), (-7, 2), changes.SIGN),
        ("return a if b else 0", (7, 0), 7, changes.SIDES),
        ("return a + 2 + b", (7, 2), 12, changes.NUMBER),
        ("return sum(range(a)) + b", (4, 0), 10, changes.ONE_MORE),
        ("c = (a + b) / 2\n    return c", (7, 3), 6.0, changes.ONE_MORE),
        ("c = [b]\n    return a * c[0] + c[0]", (7, 2), 21, changes.NAMES),
        ("return tuple([1, 2, 3, 4][:a]) * b", (2, 1), (1, 2, 3), changes.ONE_MORE),
        ("return (b, a)", (7, 2), (7, 2), changes.ORDER),
        ("return tuple([b, a])", (7, 2), (7, 2), changes.ORDER),
        ("return tuple({'x': b, 'y': a}.values())", (7, 2), (7, 2), changes.ORDER),
        ("return bernoulli(a) * b", (0.25, 4), 3.0, changes.REST),
        ("return gelu(a) * b", (3, 2), 8, changes.OPTION),
        ("b += 1\n    return b", (7, 2), 9, changes.NAME),
        ("return max(a, b)", (7, 2), 2, changes.FUNCTION),
        ("c = [a]\n    d = c\n    c[0] = b\n    return d[0]", (7, 2), 7, changes.COPY),
        ("return a * 20", (7, 2), "140", changes.UNUSED),
        ("return math.floor(a / b)", (7, 2), 4, changes.FUNCTION),
        ("return solve(b, a, 0)", (7, 2), 27, changes.ARGUMENTS),
        ("return dict(x=a, y=b)['x']", (7, 2), 2, changes.ARGUMENTS),
        ("a += b\n    return a * b", (7, 2), 10, changes.OPERATOR),
        ("a = a * 3 + b\n    return a + b", (7, 2), 9, changes.LINE),
        ("if not a:\n        return b\n    return 0", (7, 2), 2, changes.OPPOSITE),
        ("return a // b", (7, 2), 4, changes.ONE_MORE),
        ("c = [0]\n    c[0] = a\n    c[0] = b\n    return c[0]", (7, 2), 9, changes.OPERATOR),
        ("x = a\n    a = a + b * 5\n    return x + b", (7, 2), 19, EXCHANGED),
        ("x, y = a, b * 5\n    return x + 3 * y", (7, 2), 31, changes.ORDER),
        ("return solve(a, b, 0)", (7, 2), 727, changes.ALIKE),
        ("return solve(b)", (7, 2), 752, changes.ALIKE),
        ("return (b > 1) + a", (True, 0), 1, changes.COMPARISON),
        ("return a & b", (True, True), False, changes.OPPOSITE),
        ("return a & b", (True, False), True, changes.OPERATOR),
        ("b = b * 0.5\n    return 8 * b", (0, 0.25), 3.0, changes.REST),
        ("return tuple(sorted({a, b, 3}))", (7, 2), (2, 7), changes.NOTHING),
        ("return 'left'", (7, 2), "right", changes.OPTION),
        ("c = str(a)\n    c.replace('7', '8')\n    return c", (7, 2), "8", changes.KEPT),
        ("c = 'abcd'\n    return c[a:b] + c[: b - 1]", (1, 3), "bcbc", changes.SLICE),
        ("return a * 9", (7, 2), 14, changes.NAME),
        ("b = 9\n    return a * b", (7, 2), 14, changes.MISSING),
        ("return 'abcde'[:1] * a", (2, 3), "dd", changes.NAME),
    ],
)
def test_mistakes_that_people_make_are_undone_by_a_mutant(
    body: str, arguments: tuple[float, ...], right: object, words: str
) -> None:
    assert list_answers(f"{SOLVE}def f(a, b):\n    {body}\n", *arguments).get(right) == words


TIMES_C, X = {"factors": ["c"], "is_counted": False}, torch.tensor([[1, 2]])


@pytest.mark.parametrize(
    ("body", "arguments", "alike", "given", "right", "words"),
    [
        ("(a, b):\n    return a * b", (7, 2), (), {"is_counted": False}, 21, changes.ONE_MORE),
        ("(a, b):\n    return abs(a)", (-7, 3), (), {"factors": ["b"], "is_backward": True}, 21, changes.FACTOR),
        ("(a, b, c):\n    return a + b", (2, 3, 5), (), TIMES_C, 13, changes.TERM),
        ("(a, b, c):\n    return a + 2 * b", (2, 3, 5), (), TIMES_C, 32, changes.FACTOR),
        ("(a, b):\n    c = a\n    return str(c) + str(b)", (3, 4), ("a", "b"), {}, "124", changes.TIMES),
        ("(a, b, c):\n    return (a % b, b)", (17, 4, 3), ("b", "c"), {}, (5, 4), changes.BOTH),
        ("(w):\n    return w['a'] + 1", ({"a": 1, "b": 5},), ("w['a']", "w['b']"), {}, 6, changes.NAME),
        ("(q, k, v):\n    return q * k + k * v, v", (2, 3, 5), ("q", "k", "v"), {}, (2 * 3 + 5 * 5, 5), changes.NAME),
        ("(q, k, v):\n    return q + 2 * k + v", (2, 3, 5), ("q", "k"), {}, 12, changes.NAMES),
        ("(q, k):\n    c = max(q, 1) + q\n    return c, k, q", (2, 3), ("q", "k"), {}, (6, 3, 2), changes.EVERYWHERE),
        ("(a, b):\n    c = abs(a)\n    return c", (7, 5), (), {"masks": "b", "is_counted": False}, 35, changes.FACTOR),
        ("(a, b):\n    return str({**a, **b})", ({1: 2}, {1: 3}), (), {}, "{1: 2}", changes.MERGED),
        ("(a):\n    return sorted(a)[0]", ([7, 2],), (), {"defaults": {"reverse": False}}, 7, changes.MORE),
        ("(a, n):\n    return sum(a) + 0 * n", ([7], 2), ("0", "n"), {"defaults": {"start": 0}}, 9, changes.MORE),
        ("(a, b):\n    return g(a)\n\n\ndef g(a, b=0):\n    return a + 10 * b", (7, 2), (), {}, 27, changes.MORE),
        ("(x):\n    return str(x.repeat(1, 2).tolist())", (X,), (), {}, "[[1, 1, 2, 2]]", changes.FUNCTION),
        ("(x):\n    return str(x.repeat_interleave(2, -1).tolist())", (X,), (), {}, "[[1, 2, 1, 2]]", changes.FUNCTION),
        (
            "(q, k, v):\n    q, v = map(abs, (q, v))\n    return q, k, v",
            (2, -3, -5),
            ("k", "v"),
            {},
            (2, 3, -5),
            changes.EVERYWHERE,
        ),
    ],
)
def test_mistakes_are_undone_by_what_the_code_has_elsewhere(
    body: str, arguments: tuple, alike: tuple[str, ...], given: dict[str, Any], right: object, words: str
) -> None:
    assert list_answers(f"def f{body}\n", *arguments, alike=alike, **given)[right] == words


@pytest.mark.parametrize("start", ["0.0", "torch.zeros(1).item()"])
def test_a_maximum_may_begin_at_minus_infinity(start: str) -> None:
    answers = list_answers(f"import torch\ndef f(a):\n    largest = {start}\n    return str(largest) + a\n", "")
    assert answers["-inf"] == changes.START


def test_a_negative_number_is_marked_as_a_whole() -> None:
    mutable = Mutable(ast.parse("def f(x):\n    return x[-2]\n"), "f")
    marked = {ast.unparse(each.node) for each in mutable.list_mutants(make_changes()) if each.words == changes.NUMBER}
    assert marked == {"-2"}


def test_arguments_that_are_named_as_the_function_names_them_keep_their_order() -> None:
    answers = list_answers(f"{SOLVE}def f(a, b):\n    return solve(a, b, 0)\n", 7, 2)
    assert 72 not in answers
    assert answers[207] == changes.ARGUMENTS


def test_a_missing_factor_is_put_there() -> None:
    answers = list_answers("def f(a, b):\n    c = a + 1\n    return str(c) + str(b)\n", 7, 4, is_counted=False)
    assert {answers.get(str(x) + "4") for x in (8 * 4, 8 / 4, 8 / (1 - 4))} == {changes.FACTOR}


@pytest.mark.parametrize(
    ("pattern", "other"),
    [
        ("... q d, ... k d -> ... q k", "... q d, ... k d -> ... k q"),
        ("bqd,bkd->bqk", "bqd,kbd->bqk"),
        ("... s (d h) -> ... h s d", "... s (h d) -> ... h s d"),
    ],
)
def test_axes_of_a_pattern_are_exchanged(pattern: str, other: str) -> None:
    for body in (f"return ''.join('{pattern}')", f"pattern = '{pattern}'\n    return pattern"):
        assert list_answers(f"def f():\n    {body}\n")[other] == changes.ORDER


@pytest.mark.parametrize("body", ["return x if n is None else x + n", "return x + n", "x = x[:n]\n    return x"])
def test_no_mutant_ignores_a_parameter(body: str) -> None:
    mutable = Mutable(ast.parse(f"def f(x, n):\n    {body}\n"), "f")
    for mutant in mutable.list_mutants(make_changes()):
        code = mutable.compile(mutant, "f.py")
        assert code is None or "n" in code.co_varnames


def test_no_mutant_stands_in_itself() -> None:
    tree = ast.parse("def f(a, b):\n    return abs(b - a) * (3 - a)\n")
    mutable = Mutable(tree, "f")
    for mutant in mutable.list_mutants(replace(make_changes(), inside=[*ast.walk(mutable.function)])):
        assert mutable.compile(mutant, "f.py")


def test_a_mutant_that_loops_for_ever_is_ended() -> None:
    tree = ast.parse("def f(n):\n    while n > 0:\n        n -= 1\n    return n\n")
    mutable, ended = Mutable(tree, "f"), Counter[bool]()
    for mutant in mutable.list_mutants(make_changes()):
        looks = itertools.count()
        names: dict[str, Any] = {PROBE: lambda _, value, looks=looks: value if next(looks) < 100 else 1 / 0}
        exec(compile(tree, "f.py", "exec"), names)  # noqa: S102 (the program of a test)
        names["f"].__code__ = mutable.compile(mutant, "f.py")
        try:
            names["f"](3)
            ended[True] += 1
        except ZeroDivisionError:
            ended[False] += 1
    assert ended[True] > 3 < ended[False]


POLAR = """        a = self.angles[positions]
        pairs = torch.view_as_complex(x.double().reshape(*x.shape[:-1], -1, 2).contiguous())
        return torch.view_as_real(pairs / torch.polar(torch.ones_like(a), a)).flatten(-2).to(x.dtype)
"""
TURNED = RIGHT[RIGHT.index("        cos, sin = self") : RIGHT.index("\n\ndef run_rope")]
ANGLES = ("self.cos, self.sin = angles.cos(), angles.sin()", "self.angles = angles")


def test_the_expression_is_marked_that_one_change_repairs(find_alone: Explain) -> None:
    (finding,) = find_alone(ROPE, ("arange(longest,", "arange(longest - 1,"))
    assert list_marks([finding]) == ["longest - 1"]
    assert finding.proof.startswith("With another operator here, ")


def test_a_call_is_repaired_where_it_is_wrong_and_not_in_a_function_that_other_problems_run(find: Explain) -> None:
    """Another order inside the function would do as well for these calls, but other tests that pass would fail."""
    take = above(
        "def scores_of",
        "def answer(inputs, mask):\n    Q, V, K = inputs\n    return run_scaled_dot_product_attention(Q, K, V, mask)",
    )
    called = ("heads = run_scaled_dot_product_attention(q, k, v, mask)", "heads = answer([q, k, v], mask)")
    both = "k.repeat_interleave(group, -3), v.repeat_interleave(group, -3)"
    swapped = "v.repeat_interleave(group, -3), k.repeat_interleave(group, -3)"
    decoded = (f"run_scaled_dot_product_attention(q, {both}, mask)", f"answer([q, {swapped}], mask)")
    (finding,) = find([MULTIHEAD, "decoding"], take, called, decoded)
    assert list_marks([finding]) == ["[q, k, v]"]


WIDE, NARROW = "x = in_features.to(torch.promote_types(in_features.dtype, torch.float32))", "x = in_features"
IS_HALF = above("def run_softmax", "def half(dtype):\n    return dtype == torch.float16")
FUNCTOOLS = ("import math", "import functools\nimport math")
WRAPPER = """def in_float32(f):
    @functools.wraps(f)
    def run(x, dim):
        dtype = x.dtype
        return f(x.float() if dtype == torch.float16 else x, dim).to(dtype)
    return run


@in_float32
def run_softmax"""


@pytest.mark.parametrize(
    ("edits", "mark"),
    [
        ([(WIDE, f"{NARROW}\n    x = x.float() if x.itemsize < 2 else x")], "x.itemsize < 2"),
        ([IS_HALF, (WIDE, f"{NARROW}\n    x = x.float() if half(x.dtype) else x")], "dtype == torch.float16"),
        ([FUNCTOOLS, ("def run_softmax", WRAPPER), (WIDE, NARROW)], "dtype == torch.float16"),
    ],
    ids=["inline", "in a function", "in a wrapper that a decorator made"],
)
def test_a_guard_that_leaves_half_precision_as_it_is_is_marked(
    find_alone: Explain, edits: list[tuple[str, str]], mark: str
) -> None:
    (finding,) = find_alone("softmax", *edits)
    assert list_marks([finding]) == [mark]


def test_what_the_code_refuses_itself_is_not_repaired(find_alone: Explain) -> None:
    refuses = "    if d_k % 4:\n        raise ValueError('d_k must be a multiple of 4')\n    return Rotation("
    (finding,) = find_alone(ROPE, ("    return Rotation(", refuses))
    assert list_marks([finding]) == ["raise ValueError('d_k must be a multiple of 4')"]
    assert finding.proof.endswith("at this error.")


def test_a_call_that_runs_a_line_proved_wrong_elsewhere_refers_to_it(find: Explain) -> None:
    rows = ("lambda x: rotation(x, positions))", "lambda x: rotation(x.mT.mT.clone(), positions + 0))")
    first, second = find([ROPE, MULTIHEAD], ANGLES, (TURNED, POLAR), rows)
    assert first.file
    assert not second.file
    assert second.is_of_earlier
    assert f":{first.line}" in second.said[0]


DROPS = """def run_scaled_dot_product_attention_module(Q, K, V, mask, dropout, training, seed):
    weights = run_softmax(scores_of(Q, K, mask), -1)
    if training:
        torch.manual_seed(seed)
        weights = weights * torch.empty_like(weights).bernoulli_(1 - dropout) / (1 - dropout)
    return weights @ V, weights


"""


@pytest.mark.parametrize(
    ("right", "wrong", "mark"),
    [
        ("/ (1 - dropout)", "* (1 - dropout)", "weights * torch.empty_like(weights)"),
        ("bernoulli_(1 - dropout)", "bernoulli_(dropout)", "dropout"),
    ],
)
def test_a_property_that_no_stored_value_shows_is_repaired(find: Explain, right: str, wrong: str, mark: str) -> None:
    (finding,) = find(["attention_module"], ("class Rotation:", f"{DROPS.replace(right, wrong)}class Rotation:"))
    assert list_marks([finding])[0].startswith(mark)
    assert finding.proof.endswith("failing tests pass.")
