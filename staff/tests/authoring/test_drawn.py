"""The cases of the hidden properties: the same wherever they are drawn, and no two of a kind alike."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from problems.scaled_dot_product_attention.staff import cases as attention
from problems.softmax.staff.cases import kinds
from staff.tests import ROOT
from whichline_grader.authoring.programs import RIGHT
from whichline_grader.hidden.drawn import EXAMPLES, DrawnCases
from whichline_grader.hidden.kinds import Spread
from whichline_grader.hidden.release import REHEARSAL, Release, load_release


def drawn() -> list[tuple[object, ...]]:
    """What is drawn for softmax, in short."""
    draws = (DrawnCases(draw, load_release(), kind) for kind, draw in kinds().items())
    cases = [case.inputs for each in draws for case in each.examples()]
    return [(*inputs["in_features"].shape, inputs["dim"], float(inputs["in_features"].sum())) for inputs in cases]


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_of_few_choices_each_is_some_cases(length: int) -> None:
    for seed in range(20):
        assert len({Spread(seed, turn).choice(range(length)) for turn in range(EXAMPLES)}) == min(length, EXAMPLES)


def test_every_kind_has_a_case_of_each_scale() -> None:
    for kind, draw in kinds().items():
        cases = DrawnCases(draw, load_release(), kind).examples()
        largest = sorted(float(case.inputs["in_features"].abs().max()) for case in cases)
        assert largest[0] < 10 < largest[-1], kind


@pytest.mark.parametrize("scale", [lambda V: 1.0, lambda V: V.shape[-1] ** -0.5], ids=["missing", "root of d_v"])
def test_no_mistake_passes_by_the_luck_of_the_draw(scale: Callable[[Tensor], float]) -> None:
    right = RIGHT["run_scaled_dot_product_attention"]

    def wrong(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
        return right(Q * Q.shape[-1] ** 0.5 * scale(V), K, V, mask)

    for seed in range(50):
        for kind, draw in attention.kinds().items():
            drawn = [draw(Spread(seed, turn)).draw(torch.Generator().manual_seed(seed)) for turn in range(EXAMPLES)]
            assert not all(torch.allclose(right(**inputs), wrong(**inputs), 1e-3) for inputs in drawn), (seed, kind)


def test_no_gradient_of_zero_passes_by_the_luck_of_the_draw() -> None:
    """Where one logit is so large that its probability is 1, it would: what flows back is nothing beside what comes."""
    gradient = "gradient of in_features"
    for secret in (REHEARSAL.secret, *(b"secret %d" % number for number in range(50))):
        for kind, draw in kinds(gradients=("in_features",)).items():
            cases = DrawnCases(draw, Release(secret), kind).examples()
            assert any((case.expected[gradient].abs() > case.tolerance[gradient]).any() for case in cases), kind


@pytest.mark.nightly
def test_what_is_drawn_depends_on_no_module_that_is_imported_besides(tmp_path) -> None:
    (tmp_path / "constants.py").write_text(f"NUMBERS = {list(range(1000, 1300))}\n")
    code = "import constants; from staff.tests.authoring.test_drawn import drawn; print(drawn())"
    command = [sys.executable, "-c", code]
    found = os.environ | {"PYTHONPATH": str(tmp_path)}
    printed = subprocess.run(command, cwd=ROOT, env=found, capture_output=True, text=True, check=True).stdout
    assert len(drawn()) > 3
    assert printed == f"{drawn()}\n"
