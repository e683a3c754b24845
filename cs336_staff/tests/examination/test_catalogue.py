"""`cs336 staff verify` examines every misconception that is in the table: all are, and the solution has no findings."""

import pytest

import adapters
from cs336_kit.engine.room import load_room
from cs336_staff.authoring.programs import CATALOGUE, expected_findings
from cs336_staff.authoring.room import load_rooms

EXPECTED = expected_findings()
EXAMINED = [(problem, adapter) for problem in load_rooms() for adapter in load_room(problem).examinations]


@pytest.mark.parametrize(("problem", "adapter"), EXAMINED)
def test_every_misconception_is_in_the_table(problem, adapter):
    entries = {id for id, entry in CATALOGUE.items() if entry.problem == problem and adapter in entry.adapters}
    assert EXPECTED[adapter].keys() == entries


@pytest.mark.parametrize(("problem", "adapter"), EXAMINED)
def test_the_solution_has_none(problem, adapter):
    assert load_room(problem).examinations[adapter](getattr(adapters, adapter)) == []
