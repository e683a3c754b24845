"""What every examination says of the misconceptions of its problem, and of right programs: nothing."""

import pytest

import adapters
from cs336_kit.examination.problems import EXAMINATIONS
from cs336_staff.authoring.misconceptions import CATALOGUE
from cs336_staff.authoring.right_styles import RIGHT_STYLES
from cs336_staff.release.verify import expected_findings, submission

EXPECTED = expected_findings()
EXAMINED = [(problem, adapter) for problem, examinations in EXAMINATIONS.items() for adapter in examinations]


def ids(problem, adapter, run):
    return [finding.id for finding in EXAMINATIONS[problem][adapter](run)]


@pytest.mark.parametrize(
    ("problem", "adapter", "id"), [(*examined, id) for examined in EXAMINED for id in EXPECTED[examined[1]]]
)
def test_a_misconception_has_its_findings(problem, adapter, id):
    assert ids(problem, adapter, submission(id)[adapter]) == EXPECTED[adapter][id]


@pytest.mark.parametrize(("problem", "adapter"), EXAMINED)
def test_every_misconception_is_in_the_table(problem, adapter):
    entries = {id for id, entry in CATALOGUE.items() if entry.problem == problem and adapter in entry.adapters}
    assert EXPECTED[adapter].keys() == entries


@pytest.mark.parametrize(("problem", "adapter"), EXAMINED)
@pytest.mark.parametrize("style", RIGHT_STYLES)
def test_a_right_style_has_none(problem, adapter, style):
    assert ids(problem, adapter, RIGHT_STYLES[style][adapter]) == []


@pytest.mark.parametrize(("problem", "adapter"), EXAMINED)
def test_the_solution_has_none(problem, adapter):
    assert ids(problem, adapter, getattr(adapters, adapter)) == []
