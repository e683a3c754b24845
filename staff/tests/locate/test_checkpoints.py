"""The steps of a reference: on every stored case, the last one is the stored answer."""

import pytest
import torch

from staff.tests.locate.test_places import REFERENCES
from staff.tools.student import ROOT
from whichline.engine.case import list_case_names, load_case
from whichline.engine.compare import same
from whichline.locate.checkpoints import list_reached

CASES = [
    case
    for folder in (ROOT / "fixtures", ROOT / "staff" / "fixtures")
    for name in list_case_names(folder, "*/*")
    if (case := load_case(folder, name)).call in REFERENCES and "answer" in case.expected
]


def test_there_are_cases_of_every_adapter() -> None:
    assert {case.call for case in CASES} == REFERENCES.keys()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_last_step_is_the_stored_answer(case) -> None:
    *_, last = REFERENCES[case.call].compute_checkpoints(case.inputs).taken.values()
    assert same(last.value.tensor, case.expected["answer"], within=1e-12).all()


def test_the_steps_of_one_call_pass_gradients_on_to_the_arguments_of_the_next() -> None:
    case = next(case for case in CASES if case.call == "run_linear")
    arguments = {**case.inputs, "weights": case.weights.requires_grad_(), "in_features": case.in_features}
    steps = REFERENCES["run_linear"].compute_checkpoints(arguments)
    for _ in range(2):
        steps.arguments.given = [weights] = [case.weights.detach().clone().requires_grad_()]
        steps.taken["the weights, transposed"].graft().sum().backward()
        assert weights.grad is not None
        assert (weights.grad == 1).all()
        steps.taken["the answer"].graft().sum().backward()
        right = 1 + case.in_features.flatten(0, -2).sum(0)
        assert same(weights.grad, right.expand_as(weights), within=1e-6).all()


def test_the_graph_of_a_view_whose_base_has_changed_is_not_followed() -> None:
    base = torch.zeros(3)
    with torch.no_grad():
        view = base[:2]
    base.mul_(torch.ones(3, requires_grad=True))
    assert view.requires_grad
    assert list_reached(view) == []  # torch raises when it is asked for the graph
