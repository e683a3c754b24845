"""`cs336 debug`: what it finds in a call and in a student's attention, and what it says of bad input."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from cs336_staff.tests.lab.conftest import Lab

# Attention with one thing to be changed by a test.
ATTENTION = """\
import math
import torch

def run_scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q.float() @ K.float().mT / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = torch.softmax(scores, dim=-1).nan_to_num()
    return (weights @ V.float()).to(Q.dtype)
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
        "   from -5.168 to 5.892, standard deviation 2.578",
        "   the largest float32 is 3.403e+38",
        "",
        "3 Scaled scores, divided by √11 = 3.317  (this tool, in float64)",
        "   from -1.558 to 1.776, standard deviation 0.7773",
        "   exp() overflows in float32 above 88.72",
        "",
        "4 Mask",
        "   leaves 1 to 7 of 7 keys to a query",
        "   4 on average; nothing to 0 of 14",
        "",
        "5 Weights  (your code, with the identity as V)",
        "   from 0 to 1",
        "   rows sum to 1",
        "   entropy of a row 1.25 on average, of 1.42 if all its keys were alike",
        "   they are the softmax of Q Kᵀ divided by 3.317; √d_k is 3.317",
        "",
        "6 Output  (your code)",
        "   (2, 7, 13) float32, from -2.059 to 2.575",
        "",
        "No NaN, no infinity.",
        "Nothing here looks wrong.",
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
    "case",
    ["/4d-causal", "-half-precision/float16", "-half-precision/bfloat16", "-last-digit/float64", "/3d-one-token"],
)
def test_a_right_call_of_any_dtype_and_shape(lab: Lab, case: str) -> None:
    assert words(lab, "--case", f"attention{case}").endswith("No NaN, no infinity. Nothing here looks wrong.")


def test_a_stored_case_is_a_file_too(lab: Lab) -> None:
    assert words(lab, "fixtures/attention/3d-causal.safetensors").endswith("Nothing here looks wrong.")


def test_leading_dimensions_that_broadcast(lab: Lab) -> None:
    shared = {"K": torch.ones(1, 5, 4), "V": torch.eye(5)[None], "mask": torch.ones(2, 1, 5, dtype=torch.bool)}
    assert words(lab, saved(**shared)).endswith("Nothing here looks wrong.")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "math.sqrt(Q.shape[-1])",
            "Q.shape[-1]",
            "→ Divided by 4, d_k itself, and not by √d_k = 2: look at the",
        ),
        (
            " / math.sqrt(Q.shape[-1])",
            "",
            "→ Divided by 1, not divided at all, and not by √d_k = 2: look at the",
        ),
        ("dim=-1", "dim=-2", "normalise over the keys, the last axis, and after the mask."),
        ("dim=-1", "dim=-2", "→ The weights do not grow with Q Kᵀ as a softmax over the keys does"),
        ("= Q.float()", "= -Q.float()", "→ The weights do not grow with Q Kᵀ as a softmax over the keys does"),
        ("(weights @", "(2 * weights @", "→ The row at [0, 0] sums to 2 but should sum to 1"),
        ("(weights @", "((weights - 1) @", "→ The weight at [0, 0, 0] is negative: exp() gives none."),
        ("-math.inf)", "-1.0)", "→ The hidden key at [0, 0, 2] has weight: set its score to -inf before the softmax."),
        ("~mask", "mask", "→ Only hidden keys have weight: is the mask taken the wrong way round? True = may attend."),
        (").to(Q.dtype)", ").double()", "→ It should be float32, as Q is: end with .to(Q.dtype)."),
        ("(weights @", "(torch.rand(()) * weights @", "→ It is not the weights above times V, first at [0, 0, 0]: "),
        ("(weights @", "(weights / (V == 0).any() @", "→ NaN or infinity at [0, 0, 0], though the weights"),
    ],
)
def test_a_mistake(lab: Lab, old: str, new: str, said: str) -> None:
    assert old in ATTENTION
    mask = torch.tensor([[ON, ON, OFF, OFF, OFF], [OFF, OFF, ON, OFF, ON], [ON, ON, OFF, OFF, OFF]])
    report = words(lab, saved(mask=mask), adapters=ATTENTION.replace(old, new))
    assert said in report
    assert report.endswith("Look at the lines with →.")


def test_overflow_in_half_precision(lab: Lab) -> None:
    wide = {name: torch.full((2, 3, 4), 200.0, dtype=torch.float16) for name in "QKV"}
    report = words(lab, saved(**wide), adapters=ATTENTION.replace(".float()", ""))
    assert "→ A score of 1.6e+05 is infinite in float16: compute in float32, return float16." in report
    assert "the largest float16 is 6.55e+04: these have to be computed in float32" in report
    assert "exp() overflows in float16 above 11.09: the maximum of each row has to go first" in report


def test_right_code_on_large_scores_gets_no_arrow(lab: Lab) -> None:
    wide = {name: torch.full((2, 3, 4), 200.0, dtype=torch.float16) for name in "QKV"}
    report = words(lab, saved(**wide))
    assert "exp() overflows in float16 above 11.09: the maximum of each row has to go first" in report
    assert report.endswith("No NaN, no infinity. Nothing here looks wrong.")


def test_a_softmax_that_overflows(lab: Lab) -> None:
    naive = ATTENTION.replace(
        "torch.softmax(scores, dim=-1).nan_to_num()", "scores.exp() / scores.exp().sum(-1)[..., None]"
    )
    report = words(lab, saved(Q=torch.full((2, 3, 4), 500.0)), adapters=naive)
    assert "where the scores are finite: it begins in the softmax. Does it subtract the maximum of each row" in report
    assert "NaN or infinity first appears in step 5, weights." in report


def test_queries_that_may_attend_to_nothing(lab: Lab) -> None:
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1] = False
    report = words(lab, saved(mask=mask))
    assert "leaves 0 to 5 of 5 keys to a query 3.33 on average; nothing to 2 of 6" in report
    assert "a query may attend to nothing, first at [0, 1]: its answer is zeros" in report
    assert report.endswith("Nothing here looks wrong.")
    report = words(lab, saved(mask=mask), adapters=ATTENTION.replace(".nan_to_num()", ""))
    assert "→ NaN or infinity, first at [0, 1, 0]: only in rows that may attend to nothing. Give zeros there." in report
    even = ATTENTION.replace("-math.inf", "-1e9")
    assert "sums to 1 but should sum to 0, as it may attend to nothing" in words(lab, saved(mask=mask), adapters=even)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Q", "→ Q is not finite, and rows that use it become NaN: look at what made Q."),
        ("K", "→ K is not finite, and rows that use it become NaN: look at what made K."),
        ("V", "→ V is not finite: even a weight of 0 gives NaN, since 0 · NaN is NaN."),
    ],
)
def test_inputs_that_are_not_finite(lab: Lab, name: str, said: str) -> None:
    x = torch.ones(2, 3, 4)
    x[1, 2, 0], x[1, 2, 1] = torch.nan, torch.inf
    ones = {other: torch.ones(2, 3, 4) for other in "QKV"}
    report = words(lab, saved(**ones | {name: x}), adapters=ATTENTION.replace(".nan_to_num()", ""))
    assert f"{name} (2, 3, 4) float32, 1 NaN and 1 infinite, first at [1, 2, 0]; else from 1 to 1" in report
    assert said in report
    assert "NaN or infinity first appears in step 1, inputs." in report
    assert ("only in rows whose scores are not finite, see above." in report) == (name != "V")


def test_nearly_all_weight_on_one_key(lab: Lab) -> None:
    large = {"Q": 1000 * torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1))}
    report = words(lab, saved(**large))
    assert "nearly all weight of a row lies on one key: the gradient of softmax all but vanishes there" in report
    assert "too few weights differ to tell what the scores were divided by" in report
    assert report.endswith("Nothing here looks wrong.")
    steep = ATTENTION.replace("/ math.sqrt(Q.shape[-1])", "* 100")
    report = words(lab, saved(), adapters=steep)
    assert (
        "→ Nearly all weight of a row lies on one key. Divided by √d_k, the scores would give an entropy of" in report
    )


ADDED = torch.tensor([0.0, 0.0, -torch.inf, -1e9, -torch.inf]).expand(3, 5).contiguous()


@pytest.mark.parametrize(
    ("mask", "said", "left"),
    [
        (ADDED, "it looks like one that is added to the scores, and the steps below use `mask == 0`.", 2),
        (torch.tensor([[1, 1, 0, 0, 0]]), "it holds 1 and 0, and the steps below use `mask.bool()`. If 1 means", 2),
        (torch.ones(3, 5), "it holds 1 and 0, and the steps below use `mask.bool()`. If 1 means hidden, it is", 5),
    ],
)
def test_a_mask_of_numbers_is_read_as_what_it_is(lab: Lab, mask: Tensor, said: str, left: int) -> None:
    report = words(lab, saved(mask=mask))
    assert said in report
    assert f"leaves {left} to {left} of 5 keys to a query" in report
    assert "rows sum to 1" in report
    assert "NaN or infinity first appears" not in report


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        (torch.zeros(3, 5), "it holds only zeros. Is it `mask == 0`, which hides nothing, or `mask.bool()`?"),
        (torch.randn(3, 5), "its numbers are neither 1 and 0 nor 0 and -inf. Which keys may a query attend to?"),
    ],
)
def test_a_mask_of_numbers_that_says_nothing(lab: Lab, mask: Tensor, said: str) -> None:
    report = words(lab, saved(mask=mask))
    assert f"→ The mask is float32, and should be bool, True = may attend: {said}" in report
    assert "Weights" not in report


def test_masks_worth_a_word(lab: Lab) -> None:
    square = {name: torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(2)) for name in "QKV"}
    later = torch.ones(3, 3, dtype=torch.bool).triu(1)
    assert "→ Each query sees later keys alone: is the causal mask inverted?" in words(lab, saved(**square, mask=later))
    assert "it hides nothing" in words(lab, saved(**square, mask=later | True))
    assert "none: every query may attend to all 3 keys" in words(lab, saved(**square))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"Q": torch.ones(2, 3, 7)}, "→ Q has d_k 7, K has 4: they should be equal. Is one of them transposed?"),
        (
            {"V": torch.ones(2, 3, 6)},
            "→ K has 5 keys, V has 3: each key needs one value. Are they of the",
        ),
        ({"Q": torch.ones(4)}, "→ Each needs two dimensions at least, (positions, features): add the one that is"),
        ({"Q": torch.ones(2, 0, 4)}, "→ One of them is empty: there is nothing to look at."),
        ({"Q": torch.ones(2, 3, 4, dtype=torch.int64)}, "→ Q, K and V should be of a floating-point dtype"),
        ({"Q": torch.ones(2, 3, 4).half()}, "→ Q, K and V should have one dtype: convert them with .to(Q.dtype)."),
        ({"mask": torch.ones(5, 3) > 0}, "→ The mask should end in (queries, keys) = (3, 5), or 1 for either."),
        ({"Q": torch.ones(3, 3, 4)}, "→ Their leading dimensions do not broadcast: make them equal, or 1 where one"),
    ],
)
def test_arguments_that_do_not_fit_together(lab: Lab, changes: dict[str, Tensor], said: str) -> None:
    report = words(lab, saved(**changes))
    assert said in report
    assert report.endswith("Look at the lines with →.")


def test_the_steps_before_an_error_of_the_students_are_printed(lab: Lab) -> None:
    adapters = ATTENTION.replace("K.float().mT", "K.float()")
    result = lab("debug", saved(), adapters=adapters)
    assert "\n4 Mask\n" in result.output
    assert "Error: RuntimeError: " in result.output
    assert "adapters.py:5, in run_scaled_dot_product_attention\n" in result.output
    assert "Traceback" not in result.output
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either FILE or --case NAME"),
        (["call.safetensors", "--case", "attention/3d-causal"], "give either FILE or --case NAME"),
        (["gone.safetensors"], "cannot read gone.safetensors: No such file or directory"),
        (["."], "cannot read .: "),
        (["adapters.py"], "adapters.py is not a safetensors file ("),
        (["other.safetensors"], "other.safetensors lacks Q and V, it has K, x: a call of attention is Q, K, V and, if"),
        (["--case", "attention/3d-casual"], "there is no case attention/3d-casual: is it one of attention/3d-causal, "),
        (["--case", "softmax/3d"], "there is no case softmax/3d: is it one of attention"),
        (["--case", "softmax/1d"], "softmax/1d lacks Q and K and V, it has in_features, dim: a call of attention is"),
    ],
)
def test_bad_input(lab: Lab, arguments: list[str], message: str) -> None:
    save_file({"K": torch.ones(2, 2), "x": torch.ones(2)}, "other.safetensors")
    result = lab("debug", *arguments)
    assert result.output.startswith(f"Error: {message}")
    assert result.output.count("\n") == 1
    assert result.exit_code == 2


def test_nothing_is_unpickled(lab: Lab, tmp_path: Path) -> None:
    torch.save({"Q": torch.ones(2, 2)}, tmp_path / "call.pt")
    result = lab("debug", "call.pt")
    assert result.output.startswith("Error: call.pt is not a safetensors file (")
    assert result.exit_code == 2


def test_code_that_changes_its_inputs_is_not_taken_for_dropout(lab: Lab) -> None:
    in_place = ATTENTION.replace("    scores = Q", "    Q.mul_(2)\n    scores = Q")
    assert "dropout" not in words(lab, saved(), adapters=in_place)


def test_an_answer_of_another_kind_of_number(lab: Lab) -> None:
    result = lab("debug", saved(), adapters=ATTENTION.replace(".to(Q.dtype)", " > 0"))
    assert result.exit_code == 1
    assert "the answer has dtype bool, expected float32, that of the inputs" in result.output
