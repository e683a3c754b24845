"""Rooms: all that staff know about a problem, in the folder of `cs336_staff/problems` that is named like it.

Nothing else of the staff's names a problem: references, cases and hidden tests are found here.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from cs336_kit.engine.assignment import FILE_NAME, Problem, SuiteError, load_problems
from cs336_kit.engine.room import load_room
from cs336_staff.authoring.cases import CaseSpec

Adapter = Callable[..., Any]  # a `run_*` function

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "cs336_staff" / "problems"
HIDDEN_TESTS = "hidden_tests.py"


Matrix = tuple[tuple[float | None, ...], ...]  # None is NaN or infinite


@dataclass(frozen=True)
class Figure:
    """A matrix of what a submission gives on one public case, which its student sees beside the right one.

    Args:
        call: the adapter that is asked.
        measure: asks it, and keeps the usable numbers of its answer; without any, no rows.
        right: the right numbers.
        allowed: of each number whether it may be other than 0.
        compare: says where two matrices differ most, in a sentence.
        title: the heading on the page.
        row: what a row of the matrix is.
        caption: what the matrices are.
    """

    call: str
    measure: Callable[[Adapter], Matrix]
    right: Callable[[], Matrix]
    allowed: Callable[[], tuple[tuple[bool, ...], ...]]
    compare: Callable[[Matrix], str]
    title: str
    row: str
    caption: str


@dataclass(frozen=True)
class Room:
    """All that staff know about one problem.

    Args:
        answers: for each adapter, a function of its name that gives the right answer: tensors of float64, for such.
        helpers: right answers of other functions that the handout names and later problems call.
        public: the cases that students have.
        hidden: those that they do not have.
        figure: what students see of their answers, beside what is right, when a test of the problem fails.
        sentences: headlines of its tests with something in them that a submission chose, as regular expressions, and
            what feedback on a hidden test says in their place.
        outputs: the names of what an adapter gives, "answer" and then others in alphabetical order, as files keep them.
    """

    answers: Sequence[Adapter]
    public: Sequence[CaseSpec]
    hidden: Sequence[CaseSpec]
    helpers: Sequence[Adapter] = ()
    figure: Figure | None = None
    sentences: Sequence[tuple[str, str]] = ()
    outputs: Sequence[str] = ("answer",)

    @property
    def calls(self) -> Sequence[str]:
        """The names of its adapters."""
        return tuple(answer.__name__ for answer in self.answers)


@cache
def load_rooms() -> Mapping[str, Room]:
    """The room of each problem by its id, in the order of the assignment; of those that this course leaves out, too.

    Raises:
        SuiteError: a problem has no room, a room no problem, or something in a room is not as it should be.
        AssignmentError: something in `assignment.toml` is not as it should be.
    """
    problems = load_all_problems()
    for stray in sorted(path.parent.name for path in FOLDER.glob("*/__init__.py") if path.parent.name not in problems):
        raise SuiteError(f"{FOLDER.relative_to(ROOT)}/{stray} belongs to no problem of {FILE_NAME}: rename one of them")
    rooms = {id: _load_room(id) for id in problems}
    for kind in ("public", "hidden"):
        _check_names({id: getattr(room, kind) for id, room in rooms.items()}, kind)
    for id, room in rooms.items():
        for adapter in load_room(id).steps:
            if adapter not in room.calls:
                raise SuiteError(f"cs336_kit/problems/{id} has steps of {adapter}, which is not among its adapters")
        if list(room.outputs) != ["answer", *sorted(room.outputs[1:])]:
            raise SuiteError(f'the room of {id} has the outputs {", ".join(room.outputs)}, expected "answer" first')
        for spec in (*room.public, *room.hidden):
            if spec.call not in room.calls:
                raise SuiteError(f"the case {spec.name} calls {spec.call}, which is not among the adapters of {id}")
    return rooms


@cache
def load_all_problems() -> Mapping[str, Problem]:
    """The problems of the assignment by id, also those that this course leaves out; read once."""
    return load_problems(ROOT, left_out=None)


def find_figure(problems: Collection[str]) -> Figure | None:
    """Find the figure of the first of some problems that has one."""
    return next((room.figure for id, room in load_rooms().items() if room.figure and id in problems), None)


def hidden_tests() -> list[Path]:
    """The files of the hidden tests, in the order of the problems."""
    return [FOLDER / id / HIDDEN_TESTS for id in load_rooms()]


@cache
def reference_of(call: str) -> Adapter:
    """The right answer of an adapter, or of a helper.

    Raises:
        KeyError: no room has it.
    """
    return {each.__name__: each for room in load_rooms().values() for each in (*room.answers, *room.helpers)}[call]


@cache
def outputs_of(call: str) -> Sequence[str]:
    """The names of what an adapter gives."""
    return next(room.outputs for room in load_rooms().values() if call in room.calls)


def _load_room(id: str) -> Room:
    for name in ("__init__.py", HIDDEN_TESTS):
        if not (FOLDER / id / name).exists():
            raise SuiteError(f"the problem {id} of {FILE_NAME} needs {FOLDER.relative_to(ROOT)}/{id}/{name}")
    room = getattr(import_module(f"cs336_staff.problems.{id}"), "ROOM", None)
    if not isinstance(room, Room):
        raise SuiteError(f"{FOLDER.relative_to(ROOT)}/{id}/__init__.py: expected ROOM, a Room")
    return room


def _check_names(cases: Mapping[str, Sequence[CaseSpec]], kind: str) -> None:
    homes: dict[str, str] = {}
    for id, specs in cases.items():
        for name in (spec.name for spec in specs):
            if home := homes.get(name):
                raise SuiteError(f"the {kind} case {name} is in the rooms of {home} and {id}: rename one of them")
            homes[name] = id
