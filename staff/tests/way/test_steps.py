"""The steps of a problem are a right program: on every stored case, the last one is the stored answer."""

import pytest

from staff.tests.way.test_places import STEPS
from staff.tools.student import ROOT
from whichline.engine.case import case_names, load_case
from whichline.engine.compare import same
from whichline.way.steps import take_steps

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
    *_, last = take_steps(STEPS[case.call], case.inputs).values()
    assert same(last.value.tensor, case.expected["answer"], within=1e-12).all()
