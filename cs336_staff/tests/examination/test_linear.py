"""What the examination of a linear layer finds."""

import pytest
import torch
from torch import nn

from cs336_kit.problems.linear.examination import examine_linear


def found(run) -> list[str]:
    return [finding.id for finding in examine_linear(run)]


def copied(d_in, d_out, weights, in_features):
    layer = nn.Linear(d_in, d_out, bias=False)
    layer.load_state_dict({"weight": weights})
    return layer(in_features)


def detached(d_in, d_out, weights, in_features):
    return in_features @ weights.T.double().float().detach()


@pytest.mark.parametrize("run", [copied, detached])
def test_weights_may_be_copied_into_the_layer(run):
    assert found(run) == []


def test_an_input_that_is_cut_from_the_graph():
    assert found(lambda d_in, d_out, weights, in_features: in_features.detach() @ weights.T) == ["linear-gradient-cut"]


def test_weights_that_are_never_loaded():
    def run(d_in, d_out, weights, in_features):
        return in_features @ torch.randn(d_out, d_in).T

    (finding,) = examine_linear(run)
    assert finding.id == "linear-own-weights"


@pytest.mark.parametrize(
    ("multiply", "ids"),
    [
        (lambda x, W: x @ (W if W.shape[0] == W.shape[1] else W.T), ["linear-transposed"]),
        (lambda x, W: x @ W + 1, ["linear-transposed", "linear-bias"]),
        (lambda x, W: -3 * x @ W.T, ["linear-scaled"]),
        (lambda x, W: x @ W.T / W.shape[1] ** 0.5, ["linear-scaled"]),
        (lambda x, W: x @ nn.functional.normalize(W, dim=1).T, ["linear-normalised"]),
        (lambda x, W: x @ W.half().float().T, ["linear-half-weights"]),
        (lambda x, W: x @ W.bfloat16().float().T, ["linear-half-weights"]),
        (lambda x, W: (x.bfloat16() @ W.bfloat16().T).float(), ["linear-half"]),
        (lambda x, W: x @ W.clamp(-0.7, 0.7).T, ["linear-clamped"]),
        (lambda x, W: (x @ W.T).softmax(-1), ["linear-bias", "linear-matrix", "linear-not-linear"]),
        (lambda x, W: x @ W.T + torch.randn(W.shape[0]), ["linear-random", "linear-bias"]),
    ],
)
def test_what_nobody_stored(multiply, ids):
    assert found(lambda d_in, d_out, weights, in_features: multiply(in_features, weights)) == ids


def test_what_a_student_reads():
    def with_bias(d_in, d_out, weights, in_features):
        return in_features @ weights.T + torch.linspace(-1, 1, d_out) / d_in**0.5

    (finding,) = examine_linear(with_bias)
    assert finding.measured == "A vector of zeros becomes (-0.5774, 0.5774); it should stay zero."
    assert finding.section == "4 Linear layer"
