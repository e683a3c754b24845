"""The weights that are kept of a submission: what a hostile one may answer, and what is kept of it."""

import json
import math
import sys
from dataclasses import asdict, replace

import pytest
import torch

from problems.scaled_dot_product_attention.reference import run_scaled_dot_product_attention
from problems.scaled_dot_product_attention.staff import figure
from whichline_grader.grading.graded import Drawn, Matrix, Notes
from whichline_grader.grading.one_submission import draw


def drawn(weights: Matrix) -> Drawn:
    return draw(replace(figure.FIGURE, measure=lambda _: weights), print)


def test_right_attention_has_the_right_weights():
    measured = figure.measure_weights(run_scaled_dot_product_attention)
    assert [pytest.approx(row, abs=1e-5) for row in figure.compute_right_weights()] == list(measured)
    pairs = zip(measured, figure.list_allowed_keys(), strict=True)
    assert all(weight == 0 for row, mask in pairs for weight in row[sum(mask) :])
    assert "agree with the right ones to three decimals" in figure.compare_weights(measured)


def test_where_wrong_attention_differs_most_is_said():
    yours = "your weight there is 0.965, and it should be 0.501."
    attend = run_scaled_dot_product_attention
    measured = figure.measure_weights(lambda Q, K, V, mask: attend(Q * math.sqrt(Q.shape[-1]), K, V, mask))
    assert figure.compare_weights(measured) == f"They differ most for query 5 and key 2, counted from 0: {yours}"


NO_MATRICES = [lambda *_: None, lambda *_: [[0.5]], lambda *_: torch.ones(10_000, 7), lambda *_: sys.exit()]
OF_V = [lambda Q, K, V, mask: V[..., :3], lambda Q, K, V, mask: V.to(torch.complex64), lambda Q, K, V, mask: V.long()]


@pytest.mark.parametrize("answer", [*NO_MATRICES, *OF_V])
def test_of_what_is_no_matrix_of_weights_nothing_is_kept(answer):
    assert figure.measure_weights(answer) == ()
    assert "no usable output" in figure.compare_weights(())


def test_what_is_not_finite_is_kept_as_such():
    measured = figure.measure_weights(lambda Q, K, V, mask: V * math.inf)  # 0 times infinity is NaN
    assert measured == ((None,) * 7,) * 7
    assert figure.compare_weights(measured) == "49 of your 49 weights are NaN or infinite."
    json.loads(json.dumps(asdict(Notes(figure=drawn(measured)))), parse_constant=pytest.fail)
