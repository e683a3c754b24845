"""The solution has no findings; `cs336 staff verify` examines every misconception."""

import pytest

import adapters
from cs336_kit.engine.room import load_room
from cs336_staff.authoring.room import load_rooms

EXAMINED = [(problem, adapter) for problem in load_rooms() for adapter in load_room(problem).examinations]


@pytest.mark.parametrize(("problem", "adapter"), EXAMINED)
def test_the_solution_has_none(problem, adapter):
    assert load_room(problem).examinations[adapter](getattr(adapters, adapter)) == []
