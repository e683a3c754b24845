"""`cs336 debug`: what it measures of a call, what the examination finds, and what it says of bad input."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from cs336_kit.engine.room import load_room
from cs336_kit.lab.comparison import set_beside_pytorch
from cs336_kit.lab.student import ADAPTER, PROBLEM, read_call, read_case
from cs336_staff.tests.lab.conftest import Lab
from cs336_staff.tools.student import ROOT

# Attention with one thing to be changed by a test.
ATTENTION = """\
import math
import torch

def run_scaled_dot_product_attention(Q, K, V, mask=None):
    wide = torch.promote_types(Q.dtype, torch.float32)
    scores = Q.to(wide) @ K.to(wide).mT / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = torch.softmax(scores, dim=-1).nan_to_num()
    return (weights @ V.to(wide)).to(Q.dtype)
"""

OFF, ON = False, True


def saved(**changes: Tensor) -> str:
    """Write a call of 2 sequences, 3 queries and 5 keys, d_k 4 and d_v 6, with these changes."""
    generator = torch.Generator().manual_seed(0)
    sizes = {"Q": (2, 3, 4), "K": (2, 5, 4), "V": (2, 5, 6)}
    tensors = {name: torch.randn(size, generator=generator) for name, size in sizes.items()}
    save_file(tensors | changes, "call.safetensors")
    return "call.safetensors"


def words(lab: Lab, *arguments: str, adapters: str = ATTENTION) -> str:
    """The report, as one line."""
    result = lab("debug", *arguments, adapters=adapters)
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= 80
    return " ".join(result.output.split())


def test_without_a_call_it_lists_the_cases_on_one_screen(lab: Lab) -> None:
    result = lab("debug", adapters=ATTENTION)
    lines = result.output.splitlines()
    assert result.exit_code == 0
    assert lines[0].startswith("attention/other-by-hand, ")
    assert lines[-1] == "uv run cs336 debug --case attention/other-by-hand"
    assert max(map(len, lines)) <= 80
    assert len(lines) < 24


def test_a_right_call_step_by_step(lab: Lab) -> None:
    result = lab("debug", "--case", "attention/3d-causal")
    lines = [line.rstrip() for line in result.output.splitlines()]
    # The numbers of each step are in a test of their own.
    assert [line for line in lines if not line.startswith(("   at [0]:", "     ", "      "))] == [
        "One call of run_scaled_dot_product_attention: attention/3d-causal",
        "",
        "1 Inputs",
        "   Q     (2, 7, 11)  float32, from -3.193 to 2.353",
        "   K     (2, 7, 11)  float32, from -2.509 to 2.619",
        "   V     (2, 7, 13)  float32, from -3.346 to 2.608",
        "   mask  (7, 7)      bool, 57% True",
        "",
        "2 Scores, Q Kᵀ  (this tool, in float64)",
        "   from -5.168 to 5.892",
        "   standard deviation 2.578",
        "   the largest float32 is 3.403e+38",
        "",
        "3 Scaled scores, divided by √11 = 3.317  (this tool, in float64)",
        "   from -1.558 to 1.776",
        "   standard deviation 0.7773",
        "   exp() overflows in float32 above 88.72",
        "",
        "4 Mask",
        "   leaves 1 to 7 of 7 keys to a query",
        "",
        "5 Weights  (your code, with the identity as V)",
        "   from 0 to 1",
        "   rows sum to 1",
        "   hidden keys have at most 0",
        "   entropy of a row 1.07 on average, of 1.22 if all its keys were alike",
        "",
        "6 Output  (your code)",
        "   (2, 7, 13) float32, from -2.059 to 2.575",
        "",
        "No NaN, no infinity.",
        "Your answer is the stored one. Nothing here looks wrong.",
    ]


def test_the_numbers_of_each_step_as_the_handout_works_them(lab: Lab) -> None:
    X = torch.tensor([[1.0, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0]])
    mask = torch.ones(3, 3, dtype=torch.bool)
    mask[1, 2] = False
    save_file({"Q": X, "K": X.clone(), "V": X.clone(), "mask": mask}, "hand.safetensors")
    report = words(lab, "hand.safetensors")
    assert "Q: 1.0000 0.0000 1.0000 0.0000 0.0000 1.0000 0.0000 1.0000" in report
    assert "1.0000 0.0000 0.5000 0.0000 1.0000 0.5000 0.5000 0.5000 1.0000" in report
    assert "1.0000 0.0000 0.5000 0.0000 1.0000 -inf 0.5000 0.5000 1.0000" in report
    assert "0.5065 0.1863 0.3072 0.2689 0.7311 0.0000 0.2741 0.2741 0.4519" in report
    assert "0.8137 0.4935 0.5065 0.1863" in report


def test_a_large_case_prints_no_numbers(lab: Lab) -> None:
    wide = {name: torch.randn(9, 9, generator=torch.Generator().manual_seed(0)) for name in "QKV"}
    assert max(len(line.split()) for line in lab("debug", saved(**wide), adapters=ATTENTION).output.splitlines()) < 20
    assert "at [0]" not in words(lab, saved(**wide))


@pytest.mark.parametrize(
    "arguments",
    [
        *(("--case", f"attention{case}") for case in ("/4d-causal", "/3d-one-token", "-last-digit/float64")),
        *(("--case", f"attention-half-precision/{dtype}") for dtype in ("float16", "bfloat16")),
    ],
)
def test_a_right_call_of_any_dtype_and_shape(lab: Lab, arguments: tuple[str, ...]) -> None:
    assert words(lab, *arguments).endswith(" Nothing here looks wrong.")


def test_leading_dimensions_that_broadcast(lab: Lab) -> None:
    shared = {"K": torch.ones(1, 5, 4), "V": torch.eye(5)[None], "mask": torch.ones(2, 1, 5, dtype=torch.bool)}
    assert words(lab, saved(**shared)).endswith("Nothing here looks wrong.")


def find(adapters: str) -> list:
    """What the examination finds in this attention."""
    namespace: dict = {}
    exec(adapters, namespace)  # noqa: S102
    return load_room(PROBLEM).examinations[ADAPTER](namespace[ADAPTER])


MASK = torch.tensor([[ON, ON, OFF, OFF, OFF], [OFF, OFF, ON, OFF, ON], [ON, ON, OFF, OFF, OFF]])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("math.sqrt(Q.shape[-1])", "Q.shape[-1]"),
        ("math.sqrt(Q.shape[-1])", "math.sqrt(1.04 * Q.shape[-1])"),  # a difference that is hard to see
        ("dim=-1", "dim=-2"),
        ("= Q.to(wide)", "= -Q.to(wide)"),
        ("(weights @", "(2 * weights @"),
        ("-math.inf)", "-1.0)"),
        ("~mask", "mask"),
        (").to(Q.dtype)", ").double()"),
        ("(weights @", "(torch.rand(()) * weights @"),
    ],
)
def test_a_mistake_is_what_the_examination_finds(lab: Lab, old: str, new: str) -> None:
    assert old in ATTENTION
    adapters = ATTENTION.replace(old, new)
    findings = find(adapters)
    for arguments, call, right in (
        ([saved(mask=MASK)], set_beside_pytorch(read_call(Path("call.safetensors"))), "PyTorch's own, in float64"),
        (["--case", "attention/3d-causal"], read_case(ROOT / "fixtures", "attention/3d-causal"), "the stored one"),
    ):
        report = words(lab, *arguments, adapters=adapters)
        touching = [each for each in findings if each.touches(call)][:3]
        assert touching
        for each in touching:
            assert " ".join(each.measured.split()) in report
            assert " ".join(each.question.split()) in report
        assert f"Your answer is not {right}" in report
        assert "Nothing here looks wrong" not in report


def test_the_gradients_of_a_case_are_compared_too(lab: Lab) -> None:
    cut = ATTENTION.replace("V.to(wide)", "V.to(wide).detach()")
    report = words(lab, "--case", "attention-gradients/3d-no-mask", adapters=cut)
    assert "the answer does not depend on V: its gradient is missing" in report
    assert find(cut)[0].measured in report


def test_what_no_experiment_explains(lab: Lab) -> None:
    """A mistake in calls of one size alone, which no experiment makes."""
    report = words(lab, saved(), adapters=ATTENTION.replace("(weights @", "((1 + (V.shape == (2, 5, 6))) * weights @"))
    assert "the answer is wrong in 36 of 36 places" in report
    assert "No experiment explains it. the smallest wrong row is query [0, 0]" in report


def test_large_scores_in_half_precision(lab: Lab) -> None:
    wide = {name: torch.full((2, 3, 4), 200.0, dtype=torch.float16) for name in "QKV"}
    right, overflowing = (
        words(lab, saved(**wide), adapters=ATTENTION.replace(".to(wide)", x)) for x in (".to(wide)", "")
    )
    for report in (right, overflowing):
        assert "the largest float16 is 6.55e+04: these have to be computed in float32" in report
        assert "exp() overflows in float16 above 11.09: the maximum of each row has to go first" in report
    assert "rows sum to 0" in overflowing
    assert "the answer is wrong in 24 of 24 places" in overflowing
    assert right.endswith("Nothing here looks wrong.")


def test_where_a_nan_first_appears(lab: Lab) -> None:
    naive = ATTENTION.replace("torch.softmax(scores, dim=-1)", "scores.exp() / scores.exp().sum(-1)[..., None]")
    naive = naive.replace(".nan_to_num()", "")
    report = words(lab, saved(Q=torch.full((2, 3, 4), 500.0)), adapters=naive)
    assert "NaN or infinity first appears in step 5, weights." in report
    assert "rows sum to" not in report
    assert "the answer is NaN or infinite in" in report


def test_queries_that_may_attend_to_nothing(lab: Lab) -> None:
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1] = False
    report = words(lab, saved(mask=mask))
    assert "leaves 0 to 5 of 5 keys to a query" in report
    assert "a query may attend to nothing, first at [0, 1]: its answer is zeros" in report
    assert report.endswith("Nothing here looks wrong.")
    for old, new, fact in (
        (".nan_to_num()", "", "10 NaN and 0 infinite, first at [0, 1, 0]"),
        ("-math.inf", "-1e9", "hidden keys have at most 0.2"),
    ):
        adapters = ATTENTION.replace(old, new)
        report = words(lab, saved(mask=mask), adapters=adapters)
        assert fact in report
        assert any(" ".join(each.measured.split()) in report for each in find(adapters))


@pytest.mark.parametrize("name", "QKV")
def test_inputs_that_are_not_finite(lab: Lab, name: str) -> None:
    x = torch.ones(2, 3, 4)
    x[1, 2, 0], x[1, 2, 1] = torch.nan, torch.inf
    ones = {other: torch.ones(2, 3, 4) for other in "QKV"}
    report = words(lab, saved(**ones | {name: x}), adapters=ATTENTION.replace(".nan_to_num()", ""))
    assert f"{name} (2, 3, 4) float32, 1 NaN and 1 infinite, first at [1, 2, 0]; else from 1 to 1" in report
    assert "NaN or infinity first appears in step 1, inputs." in report
    assert report.endswith("Look at what made the inputs: with them, attention has no right answer.")


def test_nearly_all_weight_on_one_key(lab: Lab) -> None:
    large = {"Q": 1000 * torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1))}
    report = words(lab, saved(**large))
    assert "entropy of a row 0 on average" in report
    assert report.endswith("Nothing here looks wrong.")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mask": torch.ones(5) > 0}, "mask (5,) bool does not fit what is before it: it should be boolean, True = m"),
        ({"mask": torch.ones(3, 5)}, "mask (3, 5) float32 does not fit what is before it: it should be boolean, True"),
        (
            {"mask": torch.ones(3, 5)},
            "may attend (`mask == 0` if yours is added to the scores), and of the shape (..., q",
        ),
        ({"mask": torch.ones(5, 3) > 0}, "and of the shape (..., queries, keys). Is it transposed, or of another"),
        ({"Q": torch.ones(2, 3, 7)}, "K (2, 5, 4) float32 does not fit what is before it: it should be of one float"),
        ({"V": torch.ones(2, 3, 6)}, "V (2, 3, 6) float32 does not fit what is before it: it should be of one float"),
        ({"Q": torch.ones(4)}, "Q (4,) float32 does not fit"),
        ({"Q": torch.ones(2, 0, 4)}, "Q (2, 0, 4) float32 does not fit"),
        ({"Q": torch.ones(2, 3, 4).long()}, "Q (2, 3, 4) int64 does not fit"),
        ({"Q": torch.ones(2, 3, 4).half()}, "K (2, 5, 4) float32 does not fit"),
        ({"Q": torch.ones(3, 3, 4)}, "K (2, 5, 4) float32 does not fit"),
    ],
)
def test_arguments_that_do_not_fit_together(lab: Lab, changes: dict[str, Tensor], said: str) -> None:
    report = words(lab, saved(**changes))
    assert said in report
    assert "Scores" not in report


def test_the_steps_before_an_error_of_the_students_are_printed(lab: Lab) -> None:
    adapters = ATTENTION.replace("K.to(wide).mT", "K.to(wide)")
    result = lab("debug", saved(), adapters=adapters)
    assert "\n4 Mask\n" in result.output
    assert find(adapters)[0].question in " ".join(result.output.split())
    assert "Error: RuntimeError: " in result.output
    assert "adapters.py:6, in run_scaled_dot_product_attention\n" in result.output
    assert "Traceback" not in result.output
    assert result.exit_code == 1


def test_an_answer_of_another_kind_of_number(lab: Lab) -> None:
    result = lab("debug", saved(), adapters=ATTENTION.replace(".to(Q.dtype)", " > 0"))
    assert result.exit_code == 1
    assert "the answer has dtype bool, expected float32, that of the inputs" in result.output


def test_an_error_that_the_call_itself_does_not_raise(lab: Lab) -> None:
    """The identity has another width than V."""
    result = lab("debug", saved(), adapters=ATTENTION.replace("wide =", "assert V.shape[-1] == 6; wide =", 1))
    assert "\n4 Mask\n" in result.output
    assert result.output.endswith("    here V is (2, 5, 5)\n")
    assert result.exit_code == 1
