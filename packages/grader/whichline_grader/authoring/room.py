"""Rooms of the staff: what nobody else knows about a problem, in the folder `staff` inside its room.

Nothing else of the staff's names a problem: references, cases and hidden tests are found here.
"""

import ast
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from whichline.engine.assignment import ADAPTERS, FILE_NAME, PROBLEMS, Problem, SuiteError, load_problems, this_root
from whichline.engine.room import list_rooms, load_room
from whichline.way.steps import Follow, Steps
from whichline_grader.authoring.cases import CaseSpec
from whichline_grader.places import HIDDEN_TESTS, STAFF, find_hidden_tests

Adapter = Callable[..., Any]  # a `run_*` function


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
class StaffRoom:
    """All that nobody but staff knows about one problem.

    Args:
        answers: for an adapter, a function of its name that gives the right answer: tensors of float64, for such. An
            adapter without one has the last of its steps.
        helpers: right answers of other functions that the handout names and later problems call.
        public: the cases that students have.
        hidden: those that they do not have.
        figure: what students see of their answers, beside what is right, when a test of the problem fails.
        sentences: headlines of its tests with something in them that a submission chose, as regular expressions, and
            what feedback on a hidden test says in their place.
        outputs: the names of what an adapter gives, "answer" and then others in alphabetical order, as files keep them.
    """

    public: Sequence[CaseSpec]
    hidden: Sequence[CaseSpec]
    answers: Sequence[Adapter] = ()
    helpers: Sequence[Adapter] = ()
    figure: Figure | None = None
    sentences: Sequence[tuple[str, str]] = ()
    outputs: Sequence[str] = ("answer",)

    @property
    def calls(self) -> Sequence[str]:
        """The names of its adapters."""
        return tuple(answer.__name__ for answer in self.answers)


@cache
def load_rooms() -> Mapping[str, StaffRoom]:
    """The room of each problem by its id, in the order of the assignment; of those that this course leaves out, too.

    Raises:
        SuiteError: a problem has no room, a room no problem, or something in a room is not as it should be.
        AssignmentError: something in `assignment.toml` is not as it should be.
    """
    problems = load_all_problems()
    for stray in (room for room in list_rooms() if room not in problems):
        raise SuiteError(f"{PROBLEMS}/{stray} belongs to no problem of {FILE_NAME}: rename one of them, or remove it")
    rooms = {id: _load_room(id) for id in problems}
    _check_adapters({call: id for id, room in rooms.items() for call in room.calls})
    for kind in ("public", "hidden"):
        _check_names({id: getattr(room, kind) for id, room in rooms.items()}, kind)
    for id, room in rooms.items():
        if list(room.outputs) != ["answer", *sorted(room.outputs[1:])]:
            raise SuiteError(f'the room of {id} has the outputs {", ".join(room.outputs)}, expected "answer" first')
        for spec in (*room.public, *room.hidden):
            if spec.call not in room.calls:
                raise SuiteError(f"the case {spec.name} calls {spec.call}, which is not among the adapters of {id}")
    return rooms


@cache
def load_all_problems() -> Mapping[str, Problem]:
    """The problems of the assignment by id, also those that this course leaves out; read once."""
    return load_problems(this_root(), left_out=None)


def find_figure(problems: Collection[str]) -> Figure | None:
    """Find the figure of the first of some problems that has one."""
    return next((room.figure for id, room in load_rooms().items() if room.figure and id in problems), None)


def hidden_tests() -> list[Path]:
    """The files of the hidden tests, in the order of the problems."""
    return [find_hidden_tests(this_root(), id) for id in load_rooms()]


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


def _load_room(id: str) -> StaffRoom:
    steps = load_room(id).steps
    for name in (f"{STAFF}/__init__.py", HIDDEN_TESTS):
        if not (this_root() / PROBLEMS / id / name).exists():
            raise SuiteError(f"the problem {id} of {FILE_NAME} needs {PROBLEMS}/{id}/{name}")
    room = getattr(import_module(f"{PROBLEMS}.{id}.{STAFF}"), "ROOM", None)
    if not isinstance(room, StaffRoom):
        raise SuiteError(f"{PROBLEMS}/{id}/{STAFF}/__init__.py: expected ROOM, a StaffRoom")
    by_steps = [answer_by_steps(call, follow) for call, follow in steps.items() if call not in room.calls]
    return replace(room, answers=(*room.answers, *by_steps))


def answer_by_steps(call: str, follow: Follow) -> Adapter:
    """The right answer of an adapter as its steps give it, in the dtypes of the arguments."""

    def answer(*args: Any, **kwargs: Any) -> Any:
        return follow(Steps(), *args, **kwargs)

    answer.__name__ = call
    return answer


def _check_adapters(homes: Mapping[str, str]) -> None:
    """Raise SuiteError unless the functions of `adapters.py` are those of the rooms."""
    body = ast.parse((this_root() / ADAPTERS).read_text(encoding="utf-8")).body
    defined = [each.name for each in body if isinstance(each, ast.FunctionDef) and each.name.startswith("run_")]
    for call, id in homes.items():
        if call not in defined:
            near = "".join(f": is it {each}?" for each in get_close_matches(call, defined, 1))
            raise SuiteError(f"{PROBLEMS}/{id} has {call}, which {ADAPTERS} does not define{near}")
    for call in defined:
        if call not in homes:
            raise SuiteError(f"{ADAPTERS} defines {call}, which is in no room of {PROBLEMS}/: remove it, or add it")


def _check_names(cases: Mapping[str, Sequence[CaseSpec]], kind: str) -> None:
    homes: dict[str, str] = {}
    for id, specs in cases.items():
        for name in (spec.name for spec in specs):
            if home := homes.get(name):
                raise SuiteError(f"the {kind} case {name} is in the rooms of {home} and {id}: rename one of them")
            homes[name] = id
