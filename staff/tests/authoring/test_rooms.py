"""Rooms: what is not as it should be in one is refused in a line that names the place."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import whichline.engine.room
from staff.tests import ROOT
from whichline.engine.assignment import SuiteError
from whichline_grader.authoring import room
from whichline_grader.authoring.cases import CaseSpec
from whichline_grader.authoring.programs import RIGHT
from whichline_grader.authoring.room import load_all_problems, load_rooms

PROBLEMS, ROOMS = load_all_problems(), load_rooms()
SOFTMAX = ROOMS["softmax"]


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    load_rooms.cache_clear()
    yield
    load_rooms.cache_clear()


def test_a_problem_without_a_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "load_all_problems", lambda: {**PROBLEMS, "gelu": PROBLEMS["softmax"]})
    expected = r"^the problem gelu of assignment.toml has no room: expected problems/gelu/__init__.py$"
    with pytest.raises(SuiteError, match=expected):
        load_rooms()


def test_a_problem_without_hidden_tests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "problems" / "softmax" / "staff"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    monkeypatch.setattr(room, "this_root", lambda: tmp_path)
    monkeypatch.setattr(room, "load_all_problems", lambda: dict.fromkeys(PROBLEMS, PROBLEMS["softmax"]))
    expected = "^the problem softmax of assignment.toml needs problems/softmax/staff/hidden_tests.py$"
    with pytest.raises(SuiteError, match=expected):
        load_rooms()


def test_a_problem_that_was_renamed_in_assignment_toml_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    renamed = {"soft_max" if id == "softmax" else id: problem for id, problem in PROBLEMS.items()}
    monkeypatch.setattr(room, "load_all_problems", lambda: renamed)
    expected = "^problems/softmax belongs to no problem of assignment.toml: rename one of them, or remove it$"
    with pytest.raises(SuiteError, match=expected):
        load_rooms()


def test_every_adapter_has_its_reference_in_one_room_and_a_right_program() -> None:
    functions = ast.parse((ROOT / "adapters.py").read_text()).body
    adapters = sorted(each.name for each in functions if isinstance(each, ast.FunctionDef))
    assert adapters == sorted(call for each in ROOMS.values() for call in each.calls) == sorted(RIGHT)


def test_a_problem_of_which_nothing_ships() -> None:
    expected = r"^the problem gelu of assignment.toml has no room: expected problems/gelu/__init__.py$"
    with pytest.raises(SuiteError, match=expected):
        whichline.engine.room.load_room("gelu")


# What a room has, and what is said of it.
BAD_ROOMS = {
    "the room of softmax has the outputs answer, b, a, expected": {"outputs": ("answer", "b", "a")},
    "^the case softmax/5d calls run_sotfmax, which is not among the adapters of softmax$": {
        "hidden": [CaseSpec("softmax/5d", "run_sotfmax", lambda generator: {})]
    },
}


@pytest.mark.parametrize(("said", "change"), BAD_ROOMS.items())
def test_a_bad_room(monkeypatch: pytest.MonkeyPatch, said: str, change: dict) -> None:
    monkeypatch.setattr("problems.softmax.staff.ROOM", replace(SOFTMAX, **change))
    with pytest.raises(SuiteError, match=said):
        load_rooms()


def test_a_room_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("problems.softmax.staff.ROOM")
    with pytest.raises(SuiteError, match=r"^problems/softmax/staff/__init__.py: expected ROOM, a StaffRoom$"):
        load_rooms()


def test_steps_of_an_adapter_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        room, "load_room", lambda id: whichline.engine.room.Room(steps={"run_sotfmax": lambda step: None})
    )
    message = r"^problems/\w+ has run_sotfmax, which adapters.py does not define: is it run_softmax\?$"
    with pytest.raises(SuiteError, match=message):
        load_rooms()


def test_an_adapter_of_no_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = (ROOT / "adapters.py").read_text() + "\ndef run_convolution(x):\n    return x\n"
    (tmp_path / "adapters.py").write_text(source)
    (tmp_path / "problems").symlink_to(ROOT / "problems")
    monkeypatch.setattr(room, "this_root", lambda: tmp_path)
    message = "^adapters.py defines run_convolution, which is in no room of problems/: remove it, or add it$"
    with pytest.raises(SuiteError, match=message):
        load_rooms()


@pytest.mark.parametrize("kind", ["public", "hidden"])
def test_a_case_of_two_rooms(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    first = getattr(SOFTMAX, kind)[0]
    rooms = {**ROOMS, "linear": replace(ROOMS["linear"], **{kind: [first]})}
    monkeypatch.setattr(room, "_load_room", rooms.__getitem__)
    message = rf"^the {kind} case {first.name} is in the rooms of softmax and linear: rename one of them$"
    with pytest.raises(SuiteError, match=message):
        load_rooms()
