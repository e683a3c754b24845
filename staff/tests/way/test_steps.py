"""The steps of a problem are a right program: on every stored case, the last one is the stored answer."""

import pytest
import torch
from torch import Tensor

from staff.tests.way.test_places import STEPS
from staff.tools.student import ROOT
from whichline.engine.case import case_names, load_case
from whichline.engine.compare import same
from whichline.way.steps import Steps, take_steps

FOLDERS = (ROOT / "fixtures", ROOT / "staff" / "fixtures")
CASES = [
    case
    for folder in FOLDERS
    for name in case_names(folder, "*/*")
    if (case := load_case(folder, name)).call in STEPS and "answer" in case.expected
]


def test_there_are_cases_of_every_adapter_that_has_steps() -> None:
    assert {case.call for case in CASES} == STEPS.keys()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_last_step_is_the_stored_answer(case) -> None:
    *_, last = take_steps(STEPS[case.call], case.inputs).taken.values()
    assert same(last.value.tensor, case.expected["answer"], within=1e-12).all()


def test_the_steps_of_one_call_pass_gradients_on_to_the_arguments_of_the_next() -> None:
    def follow(step: Steps, x: Tensor, y: Tensor) -> None:
        step("x squared", x**2)
        step("x squared, times y", x**2 * y)

    steps = take_steps(follow, {"x": torch.tensor(3.0, requires_grad=True), "y": torch.tensor(5.0, requires_grad=True)})
    for _ in range(2):
        x, y = given = torch.tensor(3.0, requires_grad=True), torch.tensor(5.0, requires_grad=True)
        steps.arguments.given = given
        steps.taken["x squared"].graft().backward()
        assert (x.grad, y.grad) == (6.0, None)
        steps.taken["x squared, times y"].graft().backward()
        assert (x.grad, y.grad) == (6.0 + 30.0, 9.0)
