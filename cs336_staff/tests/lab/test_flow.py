"""`cs336 flow`: what it measures is true of attention, and what it says of bad input."""

import math
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread

from cs336_basics.nn.functional import scaled_dot_product_attention
from cs336_kit.lab.gradient_flow import DRAWS, gradient_norms, saturation
from cs336_staff.tests.lab.conftest import Lab

DIGITS = [["0"], ["1"], ["2"], ["3"]]
CAUSAL = torch.ones(8, 8, dtype=torch.bool).tril()


def test_the_norms_are_those_of_autograd_on_one_long_batch() -> None:
    norms = gradient_norms(scaled_dot_product_attention, 8, 16, CAUSAL, seed=3)
    Q, K, V, output_gradient = torch.randn(4, DRAWS, 8, 16, generator=torch.Generator().manual_seed(3)).double()
    V.requires_grad_()
    weights = torch.softmax((Q @ K.mT / 4).masked_fill(~CAUSAL, -math.inf), dim=-1)
    expected = (weights.mT @ output_gradient).norm(dim=-1).mean(dim=0)
    torch.testing.assert_close(norms["V"].double(), expected, atol=1e-5, rtol=1e-5)


def test_a_causal_mask_cuts_the_first_query_off() -> None:
    norms = gradient_norms(scaled_dot_product_attention, 8, 16, CAUSAL, seed=0)
    assert norms["Q"][0] == 0.0
    assert (norms["Q"][1:] > 0.1).all()
    assert norms["V"][0] > 3 * norms["V"][-1]


def test_scores_that_are_not_divided_saturate() -> None:
    small, large = (saturation(scaled_dot_product_attention, 8, d_k, False, seed=0) for d_k in (4, 1024))
    divided = saturation(scaled_dot_product_attention, 8, 1024, True, seed=0)
    assert large.largest_weight > 0.9 > small.largest_weight
    assert large.gradient < divided.gradient / 5
    assert divided.largest_weight == pytest.approx(
        saturation(scaled_dot_product_attention, 8, 16, True, seed=1).largest_weight, abs=0.05
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


def test_the_figure_is_drawn(lab: Lab, tmp_path: Path) -> None:
    assert lab("flow", "-o", "flow.png").output.endswith("\nflow.png is written\n")
    assert imread(tmp_path / "flow.png").std() > 0.05
    assert lab("flow", "-o", "flow.svg").exit_code == 0
    first = (tmp_path / "flow.svg").read_bytes()
    assert b"largest weight of a query" in first
    lab("flow", "-o", "flow.svg")
    assert (tmp_path / "flow.svg").read_bytes() == first


ATTENTION = """\
import math
import torch

def run_scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.mT / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return torch.softmax(scores, dim=-1).nan_to_num() @ V
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("dim=-1", "dim=-2", "normalise over the keys, the last axis, and after the mask."),
        (
            " / math.sqrt(Q.shape[-1])",
            "",
            "→ Divided by 1, not divided at all, and not by √d_k = 8: look at the scale.",
        ),
        ("-math.inf", "-1.0", "→ The hidden key at [0, 0, 1] has weight"),
    ],
)
def test_wrong_weights_are_not_explained(lab: Lab, old: str, new: str, said: str) -> None:
    words = " ".join(lab("flow", "--length", "4", adapters=ATTENTION.replace(old, new)).output.split())
    assert "what you see is what your code does, and not what attention does; cs336 debug tells more:" in words
    assert said in words
    assert "No gradient reaches" not in words
    assert "Saturation" not in words
    assert "Norms of the gradients" in words


def test_a_missing_return_is_asked_for(lab: Lab) -> None:
    result = lab("flow", adapters=ATTENTION.replace("return torch", "torch"))
    assert result.output == "Error: the answer is None, expected a tensor: is a `return` missing?\n"
    assert result.exit_code == 1


def test_one_position_of_the_output_its_gradients_beside_its_weights(lab: Lab, tmp_path: Path) -> None:
    result = lab("flow", "--length", "4", "--query", "2", "-o", "flow.svg")
    rows = [line.split() for line in result.output.split("Position 2")[1].split("Saturation")[0].splitlines()]
    weights, values, keys, queries = torch.tensor([[float(x) for x in row[1:]] for row in rows if row[:1] in DIGITS]).T
    torch.testing.assert_close(weights, values)
    assert weights[:3].sum() == pytest.approx(1.0, abs=2e-3)
    assert weights[3] == keys[3] == 0
    assert (queries > 0).tolist() == [False, False, True, False]
    assert b"weights of position 2 of the output" in (tmp_path / "flow.svg").read_bytes()


def test_a_query_that_may_attend_to_nothing(lab: Lab) -> None:
    words = " ".join(lab("flow", "--length", "4", "--mask", "empty row").output.split())
    assert "Query 3 may attend to nothing: its output is zeros, whatever Q, K and V are." in words
    assert "→" not in words
    added = ATTENTION.replace(
        "scores.masked_fill(~mask, -math.inf)", "scores + torch.zeros(mask.shape).masked_fill(~mask, -math.inf)"
    )
    words = " ".join(lab("flow", "--length", "4", "--mask", "empty row", adapters=added).output.split())
    assert (
        "→ The gradient of Q is NaN or infinite at 3. If your answer is finite there, it was corrected after the"
        in words
    )


@pytest.mark.parametrize("query", [8, 99])
def test_a_position_that_is_not_there(lab: Lab, query: int) -> None:
    result = lab("flow", "--query", str(query))
    assert (result.output, result.exit_code) == (f"Error: there is no position {query}: choose one from 0 to 7\n", 2)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("flow.pdf", "Error: expected a file that ends in .png or .svg, got flow.pdf\n"),
        ("not/flow.png", "Error: there is no folder not; make it, or name another file than not/flow.png\n"),
        ("folder.png", "Error: folder.png is a folder; name a file\n"),
    ],
)
def test_a_figure_that_cannot_be_written(lab: Lab, tmp_path: Path, output: str, message: str) -> None:
    (tmp_path / "folder.png").mkdir()
    result = lab("flow", "-o", output)
    assert (result.output, result.exit_code) == (message, 2)


def test_attention_that_is_not_written(lab: Lab) -> None:
    result = lab(
        "flow", adapters="def run_scaled_dot_product_attention(Q, K, V, mask=None):\n    raise NotImplementedError\n"
    )
    assert result.exit_code == 1
    assert result.output.startswith("Error: not implemented yet: write run_scaled_dot_product_attention in adapters.py")
