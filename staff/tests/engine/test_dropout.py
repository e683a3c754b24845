"""Dropout is judged by what it must do: every right way of it passes, and what is wrong is said in words."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from problems.attention_module.judge import check_dropout
from staff.tests import ROOT
from whichline.engine.case import Case, load_case
from whichline.engine.compare import WrongAnswer
from whichline_grader.authoring.programs import RIGHT, RIGHT_STYLES

MODULE = "run_scaled_dot_product_attention_module"
SLOW = pytest.param("row_loops_gathered_keys", marks=pytest.mark.nightly)
PAIR = "expected a tuple: the answer and the matrix of weights"
KEPT = "the weights that are kept are multiplied by"
VARIOUS = f"{KEPT} various numbers"
RESCALED = "expected 1 / (1 - 0.25) = 1.333"
SHARE = "of the weights are dropped, expected 25%"
UNCHANGED = "no weight is dropped, and the weights are not those without dropout"
NOT_SUMMED = "the output is not the sum of the values times the weights that came with it"


@pytest.fixture
def case() -> Case:
    """A dropout of 0.25 on 4,588 weights."""
    return load_case(ROOT / "fixtures", "attention_module-dropout/3d-no-mask").copy()


def refuse(case: Case, answer: object) -> WrongAnswer:
    with pytest.raises(WrongAnswer) as caught:
        check_dropout(case, answer)
    return caught.value


@pytest.mark.parametrize("style", [SLOW if each in SLOW.values else each for each in RIGHT_STYLES])
def test_every_right_way_of_dropping_passes_with_any_seed(case: Case, style: str) -> None:
    for seed in range(100):
        check_dropout(case, RIGHT_STYLES[style][MODULE](**case.inputs | {"seed": seed}))


def test_values_that_the_call_has_changed_make_no_sum_right(case: Case) -> None:
    output, weights = RIGHT[MODULE](**case.inputs)
    case.V.zero_()
    assert "the output is not the sum of the values" in str(refuse(case, (torch.zeros_like(output), weights)))


def summed(weights: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
    return weights @ V, weights


# What is wrong -> output and weights, made of the weights before dropout, and what is said of them.
WRONG = {
    "none": (summed, "in training with a dropout of 0.25 no weight is dropped"),
    "on the output": (lambda w, V: (F.dropout(w @ V, 0.25), w), "no weight is dropped, but numbers of the output are"),
    "on the scores": (lambda w, V: summed(torch.softmax(F.dropout(w.log(), 0.25), -1), V), UNCHANGED),
    "not rescaled": (lambda w, V: summed(w * (torch.rand(w.shape) >= 0.25), V), f"{KEPT} 1, {RESCALED}"),
    "divides by p": (lambda w, V: summed(F.dropout(w, 0.75), V), f"{KEPT} 4, {RESCALED}"),
    "renormalised": (lambda w, V: summed(F.normalize(F.dropout(w, 0.25), p=1.0, dim=-1), V), f"{VARIOUS}, expected"),
    "the others": (lambda w, V: summed(w * (torch.rand(w.shape) < 0.25) / 0.75, V), f"% {SHARE}"),
    "weights before dropout": (lambda w, V: (F.dropout(w, 0.25) @ V, w), NOT_SUMMED),
}


@pytest.mark.parametrize(("wrong", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said(case: Case, wrong, message: str) -> None:
    torch.manual_seed(0)
    assert message in str(refuse(case, wrong(case.expected["matrix of weights"].float(), case.V)))


def test_feedback_on_a_hidden_test_has_no_number_that_an_answer_chose(case: Case) -> None:
    wrongs = (WRONG[name][0] for name in ("not rescaled", "divides by p", "renormalised", "the others"))
    said = [refuse(case, wrong(case.expected["matrix of weights"].float(), case.V)).kind for wrong in wrongs]
    factor = "the weights that are kept should be multiplied by 1 / (1 - 0.25) = 1.333"
    assert said == [factor] * 3 + ["the share of the weights that is dropped is not 25%"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda out, w: (out * w.isnan().any(), w), "the output is not the sum"),
        (lambda out, w: (out, torch.zeros_like(w)), f"100% {SHARE}"),
        (lambda out, w: (out, w * torch.nan), "no weight is dropped, and the weights are not"),
        (lambda out, w: (out.double(), w), "the answer has dtype float64, expected float32"),
        (lambda out, w: (out, w.mT), "the matrix of weights has shape (4, 37, 31), expected (4, 31, 37)"),
        (lambda out, w: (out, None), "the matrix of weights is None, expected a tensor: is a `return`"),
        (lambda out, w: out, f"the answer is a Tensor, {PAIR}"),
        (lambda out, w: (out, w, None), f"the answer is a tuple of 3, {PAIR}"),
        (lambda out, w: None, f"the answer is None, {PAIR}"),
    ],
)
def test_what_is_no_dropout_at_all(case: Case, change, message: str) -> None:
    assert message in str(refuse(case, change(*RIGHT[MODULE](**case.inputs))))


def test_another_share_is_wrong_when_chance_does_not_explain_it(case: Case) -> None:
    def dropped(share: float) -> tuple[Tensor, Tensor]:
        count = round(share * case.expected["matrix of weights"].numel())
        weights = case.expected["matrix of weights"].float() / 0.75
        weights.view(-1)[torch.randperm(weights.numel(), generator=torch.Generator().manual_seed(0))[:count]] = 0.0
        return weights @ case.V, weights

    check_dropout(case, dropped(0.24))
    for share in (0.21, 0.29):
        assert SHARE in str(refuse(case, dropped(share)))


@pytest.mark.parametrize(
    "pattern",
    [
        lambda batch, query, key: key % 4 == batch % 4,
        lambda batch, query, key: (query + key) % 4 == 0,
        lambda batch, query, key: (7 * query + 5 * key) % 8 < 2,
        lambda batch, query, key: torch.rand(4, 31, 1, generator=torch.Generator().manual_seed(2)) < 0.25,
        lambda batch, query, key: torch.rand(1, 31, 37, generator=torch.Generator().manual_seed(1)) < 0.25,
    ],
    ids=["keys", "diagonals", "lattice", "queries", "batch"],
)
def test_weights_that_are_not_dropped_independently(case: Case, pattern) -> None:
    weights = case.expected["matrix of weights"].float() / 0.75
    axes = torch.meshgrid(*map(torch.arange, weights.shape), indexing="ij")
    weights = weights.masked_fill(pattern(*axes), 0.0)
    together = "weights are dropped together, or in a pattern: is there a random number for each of them?"
    assert str(refuse(case, summed(weights, case.V))) == together


@pytest.mark.parametrize("added", [1000.0, 1e-6, -1.0])
def test_masked_keys_keep_no_weight(added: float) -> None:
    case = load_case(ROOT / "fixtures", "attention_module-dropout/4d-padding").copy()
    output, weights = RIGHT[MODULE](**case.inputs)
    check_dropout(case, (output, weights))
    weights = weights + added * ~case.mask
    assert str(refuse(case, summed(weights, case.V))) == "keys that a query may not attend to have weights other than 0"


def test_small_weights_are_dropped_or_kept_too(case: Case) -> None:
    _, weights = RIGHT[MODULE](**case.inputs)
    small = case.expected["matrix of weights"] < 0.1 / weights.shape[-1]
    assert small.any()
    weights = weights.where(~small, 0.02)
    assert VARIOUS in str(refuse(case, summed(weights, case.V)))
