"""The place that is told of a wrong number, in a right program with mistakes written into it."""

from collections.abc import Callable

import pytest

from staff.tests.locate.conftest import ATTENTION, HEADS, LINEAR, PROBLEMS, RIGHT, ROPE, SOFTMAX, Explain, marked
from whichline.engine.finding import Finding
from whichline.engine.suite import Suite
from whichline.locate.diagnose import diagnose
from whichline.locate.instrument import PROBE
from whichline.locate.reference import load_references

REFERENCES = {adapter: each for problem in PROBLEMS for adapter, each in load_references(problem).items()}
BLOCKS, DECODING = list(PROBLEMS)[-2:]
SCORES, MERGED = 'einsum(Q, K, "... q d, ... k d -> ... q k")', 'rearrange(heads, "... h n d -> ... n (h d)")'
MASK = "torch.ones(length, length, dtype=torch.bool)"


@pytest.fixture
def explain(program: Callable[..., Suite]) -> Explain:
    """What is told of a problem, after these replacements in the right program, and `saved` after it was imported."""

    def explain(problem: str, *edits: tuple[str, str], saved: str = "") -> list[Finding]:
        suite = program(*edits)
        if saved:
            (suite.root / "adapters.py").write_text(saved)
        failing = [test for test in suite.tests if test.problem == problem and not suite.run(test).passed]
        return [each for each in diagnose(suite, problem, failing, ()) if "-raises-" not in each.id]

    return explain


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        ((SOFTMAX, "e.sum(dim,", "e.sum(-1,"), ("e.sum(-1, keepdim=True)", "; found shape (2, 5, 1)")),
        ((SOFTMAX, "x.amax(dim, keepdim=True)", "x.amax()"), ("x.amax()", "Expected the maximum along `dim`")),
        ((SOFTMAX, "torch.exp(x - largest)", "torch.exp(x)"), ("x", "Expected x − max; found x.")),
        ((SOFTMAX, "x - largest)", "(x - largest) * 2)"), ("(x - largest) * 2", "x − max; found 2 times that value.")),
        ((ATTENTION, "math.sqrt(d_k)", "d_k"), ("d_k", "Expected √d_k; found d_k.")),
        ((ATTENTION, "math.sqrt(d_k)", "(d_k ** 1 / 2)"), ("d_k ** 1 / 2", "Expected √d_k, 3.317; found 5.5.")),
        ((ATTENTION, "d_k = Q.shape[-1]", "d_k = Q.shape[-2]"), ("Q.shape[-2]", "Expected d_k, 11; found 5.")),
        ((ATTENTION, "d_k = Q.shape[-1]", "*_, d_k, _ = Q.shape"), ("d_k", "Expected d_k, 11; found 5.")),
        ((ATTENTION, "d_k =", "Q.sub_(Q)\n    d_k ="), ("Q.sub_(Q)", "Expected the queries; found 0 everywhere.")),
        ((ATTENTION, " / math.sqrt(d_k)", ""), (SCORES, "Expected the scaled scores; found the scores.")),
        ((ATTENTION, "~mask", "mask"), ("mask", "Expected the mask, inverted; found the mask.")),
        (
            (ATTENTION, "~mask, -math.inf", "~mask, 1e-9"),
            ("scores.masked_fill(~mask, 1e-9)", "found 1e−09 where −inf belongs; the rest is right."),
        ),
        (
            (ATTENTION, "mask), -1)", "mask), -2)"),
            (
                "run_softmax(scores_of(Q.to(wide), K.to(wide), mask), -2)",
                "found numbers that sum to 1 along axis −2 (`Q.shape[-2]`), not along axis −1 (`K.shape[-2]`).",
            ),
        ),
        ((ATTENTION, "(Q.to(wide), K", "(K.to(wide), K"), ("K", "Expected the queries; found the keys.")),
        ((ATTENTION, "return scores\n", "return scores * 2\n"), ("scores * 2", "scores; found 2 times that value.")),
        (
            (LINEAR, "weights.T\n", "weights.T + 1\n"),
            ("in_features @ weights.T + 1", "Expected the answer; found that value plus 1."),
        ),
        (
            (ROPE, "torch.arange(0, d, 2", "torch.arange(d // 2"),
            ("torch.arange(d // 2, dtype=torch.float64)", "Expected 2i; found the numbers of the pairs."),
        ),
        (
            (ROPE, "theta ** (-torch", "theta ** (torch"),
            (
                "theta ** (torch.arange(0, d, 2, dtype=torch.float64) / d)",
                "Expected the frequencies; found Θ to the power of 2i / d_k.",
            ),
        ),
        (
            (ROPE, "torch.arange(longest,", "1 + torch.arange(longest,"),
            ("1 + torch.arange(longest, dtype=torch.float64)[:, None] * frequencies", "plus 1."),
        ),
        (
            (ROPE, "x[..., 1::2]\n", "x[..., 0::2]\n"),
            ("x[..., 0::2]", "Expected the second components; found the first components."),
        ),
        (
            (ROPE, "first * sin + second * cos", "first * sin - second * cos"),
            ("first * sin - second * cos", "Expected the second components, rotated; found x₁ sin φ minus x₂ cos φ."),
        ),
        (
            (ROPE, "self.sin[positions]", "self.cos[positions]"),
            ("self.cos", "Expected the sines of all positions; found the cosines of all"),
        ),
        ((HEADS, ".tril()", ".tril(-1)"), (f"{MASK}.tril(-1)", "found False on the diagonal, where True belongs.")),
        ((HEADS, ".tril()", ""), (MASK, "found True in 21 places where False belongs.")),
        (
            (HEADS, "(h d) -> ... h", "(d h) -> ... h"),
            ('rearrange(x @ w.T, "... n (d h) -> ... h n d", h=num_heads)', "found the same numbers in other places."),
        ),
        (
            (HEADS, '-> ... n (h d)"', '-> ... n (d h)"'),
            (
                'rearrange(heads, "... h n d -> ... n (d h)")',
                "in another order along axis −1: 0, 8, 16, 1, … in place of 0, 1, 2, 3, ….",
            ),
        ),
        ((HEADS, "turn(q), turn(k)", "turn(q), k"), ("k", "Expected the rotated keys; found the keys of each head.")),
        (
            (HEADS, "@ weights[3].T", "@ weights[3]"),
            (f"{MERGED} @ weights[3]", "Expected the answer; found the heads side by side @ o_proj_weight."),
        ),
        (
            (BLOCKS, "torch.exp(scores - largest)", "torch.exp(scores - before)"),
            ("before", "Expected m after key block 1 of query block 1, and 0 where it is −inf; found m before"),
        ),
        (
            (BLOCKS, "shrink * weighted + e", "weighted + e"),
            ("weighted + e @ V[..., j : j + size, :].to(wide)", "plus Σ exp(s − m) v of key block 2 of query block 1."),
        ),
        (
            (DECODING, "past + torch.arange(in", "torch.arange(in"),
            ("torch.arange(in_features.shape[-2])", "Expected the positions of the new tokens; found that value minus"),
        ),
        (
            (DECODING, "distance < window", "distance <= window"),
            (
                "distance <= window",
                "Expected the mask of keys not too far back; found True on the third diagonal below the main one",
            ),
        ),
        (
            (DECODING, "torch.cat((keys, k), -2)", "torch.cat((k, keys), -2)"),
            ("torch.cat((k, keys), -2)", "the cached keys; found the same numbers in another order along axis −2"),
        ),
    ],
)
def test_a_mistake_is_told_at_its_place(explain: Explain, mistake: tuple[str, str, str], told: tuple[str, str]) -> None:
    (problem, old, new), (place, difference) = mistake, told
    (finding,) = explain(problem, (old, new))
    assert place.startswith(marked(finding).removesuffix(" …"))
    assert difference in finding.said[0]
    assert finding.proof.endswith(("failing tests pass.", "failing test passes."))


CALL = "run_scaled_dot_product_attention(q, k, v, mask)"
OTHERS: dict[str, tuple[list[tuple[str, str]], tuple[str, str], str]] = {
    "exchanged": (
        [(CALL, "run_scaled_dot_product_attention(k, q, v, mask)")],
        (HEADS, "k"),
        "Expected the queries of each head; found the keys of each head: the two are swapped.",
    ),
    "one step too many": (
        [("run_softmax(scores_of(", "run_softmax(run_softmax(scores_of("), ("mask), -1)", "mask), -1), -1)")],
        (ATTENTION, "run_softmax(run_softmax(scores_of(Q.to(wide), K.to(wide), mask), -1), -1)"),
        "Expected the weights, unchanged: this step should not be here.",
    ),
    "nothing given": (
        [(CALL, "run_scaled_dot_product_attention(q, k, v)")],
        (HEADS, "run_scaled_dot_product_attention(q, k, v)"),
        "This call passes nothing for `mask`. Line 60 computes the causal mask; nothing uses it.",
    ),
    "cached": (
        [
            ("import math\n", "import functools\nimport math\n"),
            ("def scores_of(", "@functools.cache\ndef root(d):\n    return d**1 / 2\n\n\ndef scores_of("),
            ("math.sqrt(d_k)", "root(d_k)"),
        ],
        (ATTENTION, "d**1 / 2"),
        "Expected √d_k, 3.317; found 5.5.",
    ),
    "in a handler": (
        [
            ("    largest =", "    try:\n        x = x * 1\n    except ValueError:\n        x[0] = 1\n    largest ="),
            ("e.sum(dim,", "e.mean(dim,"),
        ],
        (SOFTMAX, "e.mean(dim, keepdim=True)"),
        "Expected the sum of exp(x − max); found 0.1429 times that value.",
    ),
    "head by head": (
        [
            ("    q, k, v = (rearrange(x", "    n = x.shape[-1] // num_heads\n    q, k, v = (rearrange(x"),
            ("    if turn", "    rows = [weights[0][i : i + n] for i in range(num_heads)]\n    if turn"),
            ("    if turn", "    q = torch.stack([x @ w.T for w in rows], -3)\n    if turn"),
        ],
        (HEADS, "weights[0][i : i + n]"),
        "found rows 1, 2, 3, 4, … of W_Q, W_K and W_V, one below the other in place of rows 8, 9, 10, 11, ….",
    ),
}


@pytest.mark.parametrize(("edits", "where", "difference"), OTHERS.values(), ids=OTHERS)
def test_what_is_told_of_other_kinds_of_mistakes(
    explain: Explain, edits: list[tuple[str, str]], where: tuple[str, str], difference: str
) -> None:
    problem, place = where
    finding = explain(problem, *edits)[0]
    assert place.startswith(marked(finding).removesuffix(" …"))
    assert finding.said[0].endswith(difference)


BEFORE = "    d_k = Q"
LOUD = """import torch

STATS = {"calls": 0}


class Loud(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        count = len(args)
        return super().__torch_function__(function, types, args, kwargs or {})

"""


@pytest.mark.parametrize(
    "line",
    [
        'STATS["calls"] += 1',
        "total = [0.0]\n    (lambda: total.__setitem__(0, 1.0))()\n    def add():\n        total[0] += 1\n    add()",
        "shift = torch.zeros(1)\n    def add(value):\n        shift[...] += value\n    add(0)",
        "stack = [torch.ones(2), torch.ones(2)]\n    stack.pop().data.zero_()\n    assert len(stack) == 1",
        "assert (torch.vmap(lambda x: x * 2)(torch.ones(3)) == 2).all()",
        "if not True:\n        f = lambda x: x\n    else:\n        f = lambda x: -x\n    assert f(1) == -1",
        "assert (torch.ones(2).as_subclass(Loud) * 2).sum() == 4",
        "f = torch.compile(lambda x: x * 2, backend='eager', fullgraph=True)\n    assert f(torch.ones(1)) == 2",
    ],
    ids=["a global", "a closure", "a tensor", "a stack", "vmap", "a dead branch", "a subclass", "compiled"],
)
def test_a_mistake_is_told_whatever_else_the_code_does(explain: Explain, line: str) -> None:
    edits = ("import torch\n", LOUD), (BEFORE, f"    {line}\n{BEFORE}"), (" / math.sqrt(d_k)", "")
    (finding,) = explain(ATTENTION, *edits)
    assert marked(finding) == SCORES
    assert finding.said == ("Expected the scaled scores; found the scores.",)


def test_what_changes_by_way_of_an_array_is_seen(explain: Explain) -> None:
    through = "z = (x - largest).detach()\n    a = z.numpy()\n    a *= 2\n    e = torch.exp(z)"
    (finding, *_) = explain(SOFTMAX, ("e = torch.exp(x - largest)", through))
    assert marked(finding) == "a *= 2"
    assert finding.said == ("Expected x − max; found 2 times that value.",)


def test_a_value_that_depends_on_the_inputs_is_no_initial_value(explain: Explain) -> None:
    begins = ("(*batch, q.shape[-2], 1), -1e30", "(1, 1), -1e30")
    first, *_ = explain(BLOCKS, begins, ("weighted = shrink * weighted + e", "weighted = weighted + e"))
    assert marked(first).startswith("weighted + e @ V[")


def test_a_call_that_unpacks_its_arguments_is_no_constant(explain: Explain) -> None:
    """Its value is wrong, so what is made of it is no first divergence."""
    inner = "def in_float32(function):\n    return lambda *args: function(*args).to(args[0].dtype)\n\n\n@in_float32\n"
    head = "def run_blockwise_attention(Q, K, V, mask=None, block_size=None):"
    plain = "\n\ndef run_decoding("
    calls = f"\n\n{head}\n    return blocks(Q, K, V, mask, block_size)\n"
    edits = (head, f"{inner}def blocks(Q, K, V, mask, block_size):"), (plain, f"{calls}{plain}")
    wrong = ("shrink * total + e", "total + e"), ("total.clamp_min(1.0)", "total.clamp_min(1.0).sqrt()")
    first, *_ = explain(BLOCKS, *edits, *wrong)
    assert "function(" not in marked(first)


def test_a_layout_of_other_axes_is_not_forced_on_a_checkpoint(explain: Explain) -> None:
    """Under `vmap` the heads come before the batch, which only some test cases have."""
    vmap = "torch.vmap(run_scaled_dot_product_attention, in_dims=(-3, -3, -3, None), out_dims=-3)"
    called = (CALL, f"{vmap}(q + 0, k + 0, v, mask)")
    (first,) = explain(HEADS, called, ("        q, k = turn(q), turn(k)\n", "        pass\n"))
    assert "in another order" not in " ".join(first.said)
    assert first.proof.endswith("all 12 failing tests pass.")


def test_two_mistakes_are_told_with_both_places(explain: Explain) -> None:
    first, second = explain(ATTENTION, (" / math.sqrt(d_k)", ""), ("~mask, -math.inf", "~mask, 1e-9"))
    assert (first.said[0], first.proof) == ("Expected the scaled scores; found the scores.", "")
    assert second.said[0] == "Expected the masked, scaled scores; found 1e−09 where −inf belongs; the rest is right."
    assert second.proof == "With these two corrected, all 35 failing tests pass."


ROPE_IN = """def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return Rotation(d_k, theta, max_seq_len)(in_query_or_key, token_positions)
"""
ROPE_IN_KEYWORDS = """def run_rope(d_k, **named):
    positions = named["token_positions"]
    return Rotation(d_k, named["theta"], named["max_seq_len"])(named["in_query_or_key"], {})
"""
OWN_POSITIONS = ROPE_IN_KEYWORDS.format('torch.arange(named["in_query_or_key"].shape[-2])')
NO_THETA, MINUS = ("theta ** (", "10000.0 ** ("), ("= first * sin +", "= first * sin -")


def test_arguments_taken_as_keywords_are_followed(explain: Explain) -> None:
    (finding,) = explain(ROPE, (ROPE_IN, ROPE_IN_KEYWORDS.format("positions")), MINUS)
    assert marked(finding) == "first * sin - second * cos"


@pytest.mark.parametrize(
    ("edits", "mark", "name"),
    [
        ([NO_THETA, MINUS], "theta", "theta"),
        ([NO_THETA], "10000.0", "theta"),
        ([NO_THETA, ("self, d, theta, longest", "self, d, base, longest")], "10000.0", "theta"),
        ([(ROPE_IN, OWN_POSITIONS)], "positions", "token_positions"),
    ],
    ids=["with another mistake", "a number in its place", "another name", "taken out of keywords"],
)
def test_an_argument_that_nothing_reads(explain: Explain, edits: list[tuple[str, str]], mark: str, name: str) -> None:
    (finding,) = explain(ROPE, *edits)
    assert marked(finding) == mark
    assert finding.said[0] == f"Your code never uses `{name}`, but the right answer depends on it."


@pytest.mark.parametrize(
    ("edits", "saved"),
    [
        (
            [
                ("import math\n", "import math\nSEEN = []\n"),
                ("x - largest)", "x - largest) * len(SEEN)"),
                ("    total =", "    SEEN.append(1)\n    total ="),
            ],
            "",
        ),
        ([("e.sum(dim,", "e.sum(-1,")], RIGHT.replace("e.sum(dim,", "e.sum(  -2,")),
    ],
    ids=["another answer each time", "saved since"],
)
def test_nothing_is_told_of_what_cannot_be_followed(explain: Explain, edits: list[tuple[str, str]], saved: str) -> None:
    assert explain(SOFTMAX, *edits, saved=saved) == []


def test_the_code_is_as_it_was_afterwards(explain: Explain, public: Suite) -> None:
    assert explain(SOFTMAX, ("e.sum(dim,", "e.sum(-1,"))
    softmax = public.calls.adapters.run_softmax
    assert PROBE not in (*softmax.__code__.co_names, *softmax.__globals__)
