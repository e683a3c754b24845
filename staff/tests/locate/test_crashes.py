"""A student is told where the code raises, and what the calls that raise have and the others do not."""

import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from traceback import FrameSummary

import pytest
import torch

from staff.tests.locate.conftest import ATTENTION, HEADS, LINEAR, RIGHT, ROPE, SOFTMAX, Explain, marked, run_source
from whichline.engine.case import Case
from whichline.engine.errors import StudentRaised
from whichline.engine.finding import Finding
from whichline.engine.suite import Calls, Suite, Test
from whichline.locate.crashes import describe_crashes

EVERY, PRODUCT = "This raises in every call that the tests make.", "in_features @ weights.T"
POSITIONS = "torch.arange(in_features.shape[-2]) if token_positions is None else token_positions"


def find_in(suite: Suite) -> list[Finding]:
    passed = {test.name: suite.run(test).passed for test in suite.tests}
    failing = [test for test in suite.tests if not passed[test.name]]
    return describe_crashes(suite, failing, failing, [test for test in suite.tests if passed[test.name]])


@pytest.fixture
def explain(program: Callable[..., Suite]) -> Explain:
    """What is told of a problem, after these replacements in the right program."""

    def explain(problem: str, *edits: tuple[str, str], after: str = "") -> list[Finding]:
        suite = program(*edits, after=after)
        return find_in(replace(suite, tests=[test for test in suite.tests if test.problem == problem]))

    return explain


def test_what_grading_refuses_is_told_with_its_line_and_without_a_question(explain: Explain) -> None:
    edit = "d_k = Q.shape[-1]"
    (finding,) = explain(ATTENTION, (edit, f"open('scale.txt'); {edit}"))
    line = RIGHT[: RIGHT.index(edit)].count("\n") + 1
    assert finding.lines[-3:] == [
        f"adapters.py:{line} uses scale.txt: in grading there are no files, network or processes",
        EVERY,
        f"All {len(finding.tests)} failing tests stop at this error.",
    ]


MASK = "scores = scores.masked_fill(~mask, -math.inf)"
EINSUM = '"... q d, ... k d -> ... q k"'
SPLIT = '"... n (h d) -> ... h n d", h=num_heads'


def where(condition: str) -> str:
    return f"This raises in every call where {condition}, and in no other."


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        ((ATTENTION, "if mask is not None:", "if True:"), ("~mask", where("`mask` is None"))),
        ((ATTENTION, "d_k = Q.shape[-1]", "b, n, d_k = Q.shape"), ("b, n, d_k", where("`Q` does not have 3 axes"))),
        ((ATTENTION, "V.to(wide)", "V"), ("weights @ V", where("the inputs are in half precision"))),
        (
            (ATTENTION, "return scores\n", "return torch.from_numpy(scores.numpy())\n"),
            ("scores.numpy()", where("gradients are asked for")),
        ),
        (
            (ATTENTION, MASK, "scores[~mask] = -math.inf"),
            ("scores[~mask]", "This raises in 26 of the 32 calls where `mask` is given, and in no other."),
        ),
        (
            (ATTENTION, "return (weights @ V", "V = V.expand_as(K)\n    return (weights @ V"),
            ("V.expand_as(K)", where("`K.shape[-1]` and `V.shape[-1]` differ")),
        ),
        (
            (ATTENTION, "~mask, -math.inf", "~mask.squeeze(-2), -math.inf"),
            ("scores.masked_fill(~mask.squeeze(-2), -math.inf)", where("`Q.shape[-2]` and `mask.shape[-2]` differ")),
        ),
        ((ATTENTION, "d_k = Q.shape[-1]", "d_k = len(None)"), ("len(None)", EVERY)),
        (
            (SOFTMAX, "    largest = x", "    order = [*range(x.ndim)]\n    order.remove(dim)\n    largest = x"),
            ("order.remove(dim)", where("`dim` is negative")),
        ),
        ((LINEAR, PRODUCT, "(weights @ in_features.mT).mT"), ("in_features.mT", where("`in_features` has 1 axis"))),
        (
            (ROPE, "self.cos[positions]", "self.cos.index_select(0, positions)"),
            ("self.cos.index_select(0, positions)", where("`token_positions` has more than 1 axis")),
        ),
        (
            (ROPE, "Rotation(d_k, theta, max_seq_len)", "Rotation(d_k, theta, max_seq_len - 1)"),
            ("self.cos[positions]", where("the largest of `token_positions` is `max_seq_len` - 1")),
        ),
        (
            (HEADS, "    length = x.shape[-2]", "    length = x.shape[-2]\n    assert x.shape[-1] > num_heads"),
            ("x.shape[-1] > num_heads", where("`d_model` and `num_heads` are equal")),
        ),
        ((HEADS, POSITIONS, "token_positions"), ("positions.ndim", where("`token_positions` is None"))),
    ],
)
def test_the_place_and_the_condition(explain: Explain, mistake: tuple[str, str, str], told: tuple[str, str]) -> None:
    (problem, old, new), (place, said) = mistake, told
    (finding,) = explain(problem, (old, new))
    assert marked(finding) == place
    assert finding.said[-1] == said
    assert finding.question


def test_an_argument_that_the_def_demands(explain: Explain) -> None:
    (finding,) = explain(ATTENTION, ("V, mask=None):\n    wide", "V, mask):\n    wide"))
    assert finding.code[0].endswith("in run_scaled_dot_product_attention")
    assert marked(finding) == "def run_scaled_dot_product_attention(Q, K, V, mask):"
    assert finding.said == (
        "TypeError: run_scaled_dot_product_attention() missing 1 required positional argument: 'mask'",
        f"The definition is `def run_scaled_dot_product_attention(Q, K, V, mask)` in adapters.py:{finding.line}.",
        "This raises in every call where `mask` is left out, and in no other.",
    )
    assert finding.question == "Which arguments does the `def` name, and which does the call pass?"
    assert finding.proof == "The failing test stops at this error."


def test_parameters_in_another_order(explain: Explain) -> None:
    edit = "scores_of(Q.to(wide), K.to(wide), mask)", "scores_of(Q, K, mask).to(wide)"
    finding, *_ = explain(ATTENTION, ("def scores_of(Q, K, mask):", "def scores_of(K, Q, mask):"), edit)
    said = "The arguments are in another order than the parameters: adapters.py:28 passes `Q` for `K` of"
    assert said in str(finding.said)


@pytest.mark.parametrize(
    ("problem", "old", "new", "said"),
    [
        (ATTENTION, EINSUM, '"b q d, b k d -> b q k"', "`b q d` names 3 axes; the tensor has 4: (2, 3, 5, 11)."),
        (ATTENTION, EINSUM, '"... q d, k d -> ... q k"', "`k d` names 2 axes; the tensor has 3: (2, 7, 11)."),
        (
            *(ATTENTION, EINSUM, '"... q d, ... d k -> ... q k"'),
            "`d` is 11 in `... q d`, (2, 5, 11), and 7 in `... d k`, (2, 7, 11).",
        ),
        (
            *(ATTENTION, EINSUM, '"... q q, ... k d -> ... q k"'),
            "`... q q` names `q` twice: that asks for the diagonal of two axes of the same size.",
        ),
        (HEADS, SPLIT, '"b n (h d) -> b h n d", h=num_heads', "`b n (h d)` names 3 axes; the tensor has 2: (7, 24)."),
        (
            *(HEADS, SPLIT, '"... n (h d) -> ... h n d", h=5'),
            "`... n (h d) -> ... h n d` does not fit the shape (7, 24): "
            "shape mismatch, can't divide axis of length 24 in chunks of 5.",
        ),
    ],
)
def test_a_pattern_of_einops(explain: Explain, problem: str, old: str, new: str, said: str) -> None:
    assert said in explain(problem, (old, new))[0].said


def test_a_pattern_of_torchs_einsum(explain: Explain) -> None:
    (finding,) = explain(ATTENTION, (f"einsum(Q, K, {EINSUM})", 'torch.einsum("bqd,bkd->bqk", Q, K)'))
    assert "`bqd` names 3 axes; the tensor has 4: (2, 3, 5, 11)." in finding.said
    assert finding.said[-1] == "This raises in every call where `Q` does not have 3 axes, and in no other."


def test_a_gradient_that_raises_is_told_at_the_expression(explain: Explain) -> None:
    answer = "answer = (weights @ V.to(wide)).to(Q.dtype)\n    weights.mul_(1)\n    return answer"
    (finding,) = explain(ATTENTION, ("return (weights @ V.to(wide)).to(Q.dtype)", answer))
    assert marked(finding) == "answer = (weights @ V.to(wide)).to(Q.dtype)"
    assert finding.said[0].startswith("RuntimeError: one of the variables needed for gradient computation has been")
    assert finding.said[-1] == "The call returns; its backward pass raises in every call that the tests make."
    assert finding.question == "Which line, this one or a later one, changes in place what a gradient needs?"
    assert finding.proof == "All 4 failing tests stop at this error."


@pytest.mark.parametrize(
    ("problem", "old", "new", "question"),
    [
        (ATTENTION, "if mask is not None:", "if True:", "What should the function do when `mask` is None"),
        (ATTENTION, "d_k = Q.shape[-1]", "b, n, d_k = Q.shape", "How many axes does this line take for granted?"),
        (ATTENTION, "V.to(wide)", "V", "Which tensors meet in this line, what dtype does each have"),
        (ATTENTION, MASK, "scores[~mask] = -math.inf", "`x[mask]` does not broadcast the mask"),
        (ATTENTION, "Q.shape[-1]", "len(Q.mT.view(-1))", "How does a transposed tensor lie"),
        (ATTENTION, "d_k = Q.shape[-1]", "assert Q.ndim == 3\n    d_k = 11", "What does this check refuse"),
        (ATTENTION, "d_k = Q.shape[-1]", "Q /= 2\n    d_k = 1", "Which operation in this line changes a tensor"),
        (LINEAR, "    return in", "    torch.nn.Linear(1, 1).load_state_dict({})\n    return in", "What are your"),
        (LINEAR, "    return in", "    from torch import linera\n    return in", "Which file or package should define"),
        (LINEAR, PRODUCT, "in_features @ weights", "Which shapes meet in this line"),
        (LINEAR, PRODUCT, "run_softmax(in_features)", "Which arguments does the `def` name"),
        (ROPE, "self.cos[positions]", "self.cos[:1][positions]", "Which indices are there along that axis"),
        (LINEAR, PRODUCT, "in_features @ undefined", "Which line should define that name"),
        (LINEAR, PRODUCT, "in_features @ weights.T / (1 // 0)", "What does this line take for granted?"),
    ],
)
def test_the_question(explain: Explain, problem: str, old: str, new: str, question: str) -> None:
    finding, *_ = explain(problem, (old, new))
    assert finding.question.startswith(question), "\n".join(finding.lines)


def test_two_lines_are_counted_each_alone(explain: Explain) -> None:
    raises = ("d_k = Q.shape[-1]", "d_k = Q.shape[-1]\n    if Q.ndim == 4:\n        raise ValueError(Q.shape)")
    first, second = explain(ATTENTION, ("if mask is not None:", "if True:"), raises)
    assert first.said[-1] == "This raises in every call where `Q` has 4 axes, and in no other."
    all_tests = len(first.tests) + len(second.tests)
    assert first.proof == f"{len(first.tests)} of the {all_tests} failing tests stop at this error."
    assert second.said[-1] == "This raises in every call where `mask` is None, unless another line raises first."
    assert not set(first.tests) & set(second.tests)


def test_wrong_answers_are_counted_and_are_no_crash(explain: Explain) -> None:
    assert explain(ATTENTION, ("return scores\n", "return 2 * scores\n")) == []
    (finding,) = explain(ATTENTION, ("return scores\n", "return 2 * scores\n"), ("if mask is not None:", "if True:"))
    assert finding.proof.startswith("5 of the ")
    assert finding.said[-1] == "This raises in every call where `mask` is None, and in no other."


def test_an_exit_is_told_without_a_question(explain: Explain) -> None:
    (finding,) = explain(LINEAR, after="\ndef run_linear(d_in, d_out, weights, in_features):\n    exit()\n")
    assert finding.said[0] == "SystemExit: None"
    assert finding.said[1].startswith("This ends Python: leave it out")
    assert finding.question == ""


@pytest.mark.parametrize(
    "line", ["raise NotImplementedError", "raise Stopped('late')", "return None", f"return {PRODUCT}"]
)
def test_what_is_no_crash(explain: Explain, line: str) -> None:
    code = f"def run_linear(d_in, d_out, weights, in_features):\n    {line}\n"
    assert explain(LINEAR, after=f"\nfrom whichline.engine.errors import Stopped\n{code}") == []


def test_a_file_that_python_cannot_read_is_told_once(explain: Explain, tmp_path: Path) -> None:
    (tmp_path / "cs336_basics").mkdir()
    broken = tmp_path / "cs336_basics" / "broken.py"
    broken.write_text("def linear(x):\n    return (x\n")
    code = f"    import runpy\n    runpy.run_path({str(broken)!r})\n    return in_features @"
    (finding,) = explain(LINEAR, ("    return in_features @", code))
    assert finding.code[-3:] == ("cs336_basics/broken.py:2, in <module>", "    return (x", "           ^")
    assert finding.said == (
        "SyntaxError: '(' was never closed",
        "cs336_basics/broken.py cannot be imported: no test that needs it can run.",
    )
    assert finding.question == ""
    assert (finding.file, finding.line) == ("cs336_basics/broken.py", 2)


def test_the_operands_are_those_that_functional_call_had_given(explain: Explain) -> None:
    after = """
class Layer(torch.nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(d_in, d_out))

    def forward(self, x):
        return x @ self.weight

def run_linear(d_in, d_out, weights, in_features):
    return torch.func.functional_call(Layer(d_in, d_out), {"weight": weights}, in_features)
"""
    (finding,) = explain(LINEAR, after=after)
    assert marked(finding) == "x @ self.weight"
    assert finding.code[-1] == "    here x is (3, 5), self.weight is (7, 5)"
    assert "The second would fit if it were transposed." in finding.said


def test_code_in_another_process(public: Suite) -> None:
    frames = [
        FrameSummary("adapters.py", 3, "run_softmax", line="return softmax(x)"),
        FrameSummary("f.py", 9, "softmax", line="x.reshape(2, 3)"),
    ]

    def run_softmax(in_features: torch.Tensor, dim: int) -> torch.Tensor:
        if dim < 0:
            raise StudentRaised("RuntimeError", "shape '[2, 3]' is invalid for input of size 5", frames)
        return torch.softmax(in_features, dim)

    suite = replace(public, tests=[test for test in public.tests if test.function == "test_softmax"], remote=True)
    suite.calls.adapters = types.SimpleNamespace(run_softmax=run_softmax)
    (finding,) = find_in(suite)
    assert finding.code == ("f.py:9, in softmax", "    x.reshape(2, 3)", "    ^^^^^^^^^^^^^^^")
    assert (finding.file, finding.line, finding.function) == ("f.py", 9, "softmax")
    assert finding.said == (
        "RuntimeError: shape '[2, 3]' is invalid for input of size 5",
        "The shape [2, 3] does not hold 5 numbers: multiply its sizes and compare.",
        "This raises in every call where `dim` is negative, and in no other.",
    )


def test_another_course(tmp_path: Path) -> None:
    code = """
def run_cross_entropy(logits, targets, smoothing=None):
    batch, classes = logits.shape
    return logits.logsumexp(-1).mean() - smoothing
"""
    calls = Calls(run_source(code, tmp_path / "adapters.py"))

    def test(name: str, shape: tuple[int, ...], smoothing: float | None) -> Test:
        targets = torch.zeros(shape[:-1], dtype=torch.int64)
        inputs = {"logits": torch.ones(shape), "targets": targets, "smoothing": smoothing}
        case = Case(name, "run_cross_entropy", inputs, None, {"answer": torch.tensor(0.0)})
        return Test(name, lambda x: calls.run_cross_entropy(**x.inputs), ("", 0), stored=lambda: case, problem="loss")

    tests = [test("a", (2, 3), 0.1), test("b", (2, 3), None), test("c", (2, 4, 3), 0.1), test("d", (4, 3), None)]
    first, second = describe_crashes(Suite(tmp_path, {}, tests, calls), tests[1:], tests[1:], tests[:1])
    assert marked(first) == "logits.logsumexp(-1).mean() - smoothing"
    assert first.said[-1] == "This raises in every call where `smoothing` is None, and in no other."
    assert first.proof == "2 of the 3 failing tests stop at this error."
    assert marked(second) == "batch, classes"
    assert second.said[-1] == "This raises in every call where `logits` has 3 axes, and in no other."
    assert second.tests == ("c",)
