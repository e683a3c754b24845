"""What the examination of a linear layer finds."""

import pytest
import torch
from torch import nn

from cs336_kit.problems.linear.examination import examine_linear


def copied(x, W):
    layer = nn.Linear(*reversed(W.shape), bias=False)
    layer.load_state_dict({"weight": W})
    return layer(x)


# What no specimen has; weights may be copied into the layer.
@pytest.mark.parametrize(
    ("multiply", "ids"),
    [
        (copied, []),
        (lambda x, W: x @ W.T.double().float().detach(), []),
        (lambda x, W: x.detach() @ W.T, ["linear-gradient-cut"]),
        (lambda x, W: x @ (W if W.shape[0] == W.shape[1] else W.T), ["linear-transposed"]),
        (lambda x, W: x @ W + 1, ["linear-transposed", "linear-bias"]),
        (lambda x, W: -3 * x @ W.T, ["linear-scaled"]),
        (lambda x, W: x @ W.T / W.shape[1] ** 0.5, ["linear-scaled"]),
        (lambda x, W: x @ nn.functional.normalize(W, dim=1).T, ["linear-normalised"]),
        (lambda x, W: x @ W.bfloat16().float().T, ["linear-half-weights"]),
        (lambda x, W: (x.bfloat16() @ W.bfloat16().T).float(), ["linear-half"]),
        (lambda x, W: (x @ W.T).softmax(-1), ["linear-bias", "linear-matrix", "linear-not-linear"]),
    ],
)
def test_what_nobody_stored(multiply, ids):
    found = examine_linear(lambda d_in, d_out, weights, in_features: multiply(in_features, weights))
    assert [finding.id for finding in found] == ids


def test_what_a_student_reads():
    def with_bias(d_in, d_out, weights, in_features):
        return in_features @ weights.T + torch.linspace(-1, 1, d_out) / d_in**0.5

    (finding,) = examine_linear(with_bias)
    assert finding.measured == "A vector of zeros becomes (-0.5774, 0.5774); it should stay zero."
    assert finding.section == "4 Linear layer"
