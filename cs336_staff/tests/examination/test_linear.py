"""What the examination of a linear layer finds."""

import pytest
import torch
from torch import nn

from cs336_kit.examination.linear import examine_linear
from cs336_staff.release.verify import submission


def found(run) -> list[str]:
    return [finding.id for finding in examine_linear(run)]


def test_weights_may_be_copied_into_the_layer():
    def run(d_in, d_out, weights, in_features):
        layer = nn.Linear(d_in, d_out, bias=False)
        layer.load_state_dict({"weight": weights})
        return layer(in_features)

    assert found(run) == []


def test_weights_that_are_never_loaded():
    def run(d_in, d_out, weights, in_features):
        return in_features @ torch.randn(d_out, d_in, generator=generator).T

    generator = torch.Generator().manual_seed(0)
    (finding,) = examine_linear(run)
    assert finding.id == "linear-own-weights"
    assert "the same call gives a different answer each time" in finding.means


@pytest.mark.parametrize(
    ("run", "id"),
    [
        (lambda d_in, d_out, weights, in_features: 2 * in_features @ weights.T, "linear-scaled"),
        (lambda d_in, d_out, weights, in_features: in_features @ weights.flip(0).T, "linear-matrix"),
        (lambda d_in, d_out, weights, in_features: (in_features @ weights.T).relu(), "linear-not-linear"),
        (lambda d_in, d_out, weights, in_features: in_features @ weights.T.double().float().detach(), None),
        (lambda d_in, d_out, weights, in_features: (in_features @ weights.T).double(), "linear-dtype"),
        (lambda d_in, d_out, weights, in_features: in_features.detach() @ weights.T, "linear-gradient-cut"),
        (lambda d_in, d_out, weights, in_features: weights @ in_features, "linear-fails-unless-vector"),
        (lambda d_in, d_out, weights, in_features: (in_features @ weights.T).reshape(-1, d_out), "linear-shape-vector"),
    ],
)
def test_what_nobody_stored(run, id):
    assert found(run) == [id] * (id is not None)


def test_sequences_that_change_places():
    def run(d_in, d_out, weights, in_features):
        x = in_features.transpose(0, 1).reshape(in_features.shape) if in_features.ndim == 3 else in_features
        return x @ weights.T

    assert found(run) == ["linear-batch"]


def test_what_a_student_reads():
    (finding,) = examine_linear(submission("linear-bias")["run_linear"])
    assert finding.measured == "A vector of zeros becomes (-0.5774, 0.5774); it should stay zero."
    assert finding.section == "4 Linear layer"


def test_two_mistakes_are_two_findings():
    def run(d_in, d_out, weights, in_features):
        return (in_features @ weights.reshape(d_in, d_out) + 1).double()

    assert found(run) == ["linear-bias", "linear-reshaped", "linear-dtype"]
