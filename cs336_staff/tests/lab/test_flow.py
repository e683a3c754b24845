"""`cs336 flow`: what it measures is true of attention, and what it says of bad input."""

import math
from pathlib import Path

import pytest
import torch

from cs336_basics.nn.functional import scaled_dot_product_attention
from cs336_kit.lab.gradient_flow import DRAWS, measure_flow, measure_saturation, view_flow
from cs336_kit.lab.student import Student
from cs336_staff.tests.lab.conftest import Lab
from cs336_staff.tests.lab.test_debug import ATTENTION, found

DIGITS = [["0"], ["1"], ["2"], ["3"]]
CAUSAL = torch.ones(8, 8, dtype=torch.bool).tril()


def measured(d_k: int, seed: int) -> dict[str, torch.Tensor]:
    """The norms for a causal mask on eight positions."""
    student = Student(attention=scaled_dot_product_attention)
    return measure_flow(student, 8, d_k, "causal", None, seed).norms[1]


def test_the_norms_are_those_of_autograd_on_one_long_batch() -> None:
    Q, K, _, output_gradient = torch.randn(4, DRAWS, 8, 16, generator=torch.Generator().manual_seed(3)).double()
    weights = torch.softmax((Q @ K.mT / 4).masked_fill(~CAUSAL, -math.inf), dim=-1)
    expected = (weights.mT @ output_gradient).norm(dim=-1).mean(dim=0)
    torch.testing.assert_close(measured(16, seed=3)["V"].double(), expected, atol=1e-5, rtol=1e-5)


def test_a_causal_mask_cuts_the_first_query_off() -> None:
    norms = measured(16, seed=0)
    assert norms["Q"][0] == 0.0
    assert (norms["Q"][1:] > 0.1).all()
    assert norms["V"][0] > 3 * norms["V"][-1]


def test_scores_that_are_not_divided_saturate() -> None:
    small, large = (measure_saturation(scaled_dot_product_attention, 8, d_k, False, seed=0) for d_k in (4, 1024))
    divided = measure_saturation(scaled_dot_product_attention, 8, 1024, True, seed=0)
    assert large[0] > 0.9 > small[0]
    assert large[1] < divided[1] / 5
    assert divided[0] == pytest.approx(
        measure_saturation(scaled_dot_product_attention, 8, 16, True, seed=1)[0], abs=0.05
    )


def test_the_tables_and_what_the_mask_cuts_in_words(lab: Lab) -> None:
    result = lab("flow", "--length", "4")
    assert result.exit_code == 0
    rows = [line.split() for line in result.output.splitlines()]
    assert next(row[4] for row in rows if row[:1] == ["0"]) == "0.000"
    assert "The causal mask hides 6 of 16 pairs of a query and a key (38%)." in result.output
    words = " ".join(result.output.split())
    assert "No gradient reaches Q at 0: where one key is left, its weight is 1 whatever its score is." in words
    assert [row[0] for row in rows if row and row[0] in ("16", "64", "256", "1024")] == ["16", "64", "256", "1024"]
    assert max(map(len, result.output.splitlines())) <= 80


def test_hidden_keys_get_no_gradient(lab: Lab) -> None:
    words = " ".join(lab("flow", "--length", "8", "--mask", "padding").output.split())
    assert "No gradient reaches V at 6, 7: no query sees these values." in words


@pytest.mark.parametrize(
    ("old", "new"), [("dim=-1", "dim=-2"), (" / math.sqrt(Q.shape[-1])", ""), ("-math.inf", "-1.0")]
)
def test_wrong_attention_is_diagnosed_and_not_explained(lab: Lab, old: str, new: str) -> None:
    adapters = ATTENTION.replace(old, new)
    words = " ".join(lab("flow", "--length", "4", adapters=adapters).output.split())
    assert "what you see is what your code does, and not what attention does." in words
    assert found(adapters)[0].question in words
    assert "No gradient reaches" not in words
    assert "Saturation" not in words
    assert "Norms of the gradients" in words


def test_one_position_of_the_output_its_gradients_beside_its_weights(lab: Lab, tmp_path: Path) -> None:
    result = lab("flow", "--length", "4", "--query", "2", "-o", "flow.svg")
    assert result.output.endswith("\nflow.svg is written\n")
    rows = [line.split() for line in result.output.split("Position 2")[1].split("Saturation")[0].splitlines()]
    weights, values, keys, queries = torch.tensor([[float(x) for x in row[1:]] for row in rows if row[:1] in DIGITS]).T
    torch.testing.assert_close(weights, values)
    assert weights[:3].sum() == pytest.approx(1.0, abs=2e-3)
    assert weights[3] == keys[3] == 0
    assert (queries > 0).tolist() == [False, False, True, False]
    svg = (tmp_path / "flow.svg").read_bytes()
    assert b"weights of position 2 of the output" in svg
    assert b"largest weight of a query" in svg


def test_a_query_that_may_attend_to_nothing(lab: Lab) -> None:
    words = " ".join(lab("flow", "--length", "4", "--mask", "empty row").output.split())
    assert "Query 3 may attend to nothing: its output is zeros, whatever Q, K and V are." in words
    assert "Something is wrong" not in words
    added = ATTENTION.replace(
        "scores.masked_fill(~mask, -math.inf)", "scores + torch.zeros(mask.shape).masked_fill(~mask, -math.inf)"
    )
    words = " ".join(lab("flow", "--length", "4", "--mask", "empty row", adapters=added).output.split())
    assert "the gradient of Q is NaN or infinite" in words


def test_no_point_is_outside_its_axes() -> None:
    figure = view_flow(measure_flow(Student(attention=scaled_dot_product_attention), 6, 8, "causal", 2, 0)).draw
    assert figure is not None
    for axes in figure().axes:
        assert axes.get_ylim()[0] == 0
        assert axes.dataLim.ymax <= axes.get_ylim()[1]
