"""Rooms: all that staff know about a problem, in the folder of `cs336_staff/problems` that is named like it.

Nothing else of the staff's names a problem: references, cases, right and wrong programs are found here.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from cs336_kit.engine.assignment import FILE_NAME, Problem, SuiteError, load_problems
from cs336_kit.engine.room import load_room
from cs336_staff.authoring.cases import CaseSpec
from cs336_staff.authoring.table import Change, Table

Adapter = Callable[..., Any]  # a `run_*` function
Part = Callable[..., Any]  # a program, or a part of one that can be exchanged
Build = Callable[[Mapping[str, Part]], Part]  # makes a program of those of the problems that it needs, by their ids

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "cs336_staff" / "problems"
HIDDEN_TESTS = "hidden_tests.py"


@dataclass(frozen=True)
class Misconception:
    """A known wrong implementation.

    Args:
        id: its name, some words: "softmax-in-place".
        program: the wrong program, where no part expresses it.
        parts: the wrong parts, by name, of the right program otherwise.
        alone: whether the problems that build on this one are right all the same.
        only: the adapter in which it shows, if not in all of its problem.
        problem: the problem in which the mistake is made.
        adapters: the `run_*` functions that are wrong: of this problem, and of those in the maximum that build on it.
    """

    id: str
    program: Part | None = None
    parts: Mapping[str, Part] = field(default_factory=dict)
    alone: bool = False
    only: str = ""
    problem: str = ""
    adapters: Mapping[str, Adapter] = field(default_factory=dict)


def wrong(id: str, program: Part | None = None, *, alone: bool = False, **parts: Part) -> Misconception:
    """A misconception: a wrong program, or wrong parts of the right one; `programs.py` puts it in its place."""
    return Misconception(id, program, parts, alone)


def wrong_steps(
    prefix: str, changes: Iterable[Change], only: str = "", table: Table | None = None
) -> Iterator[Misconception]:
    """Mistakes in steps of a program as misconceptions: of a free number, with the one in the middle.

    Args:
        prefix: what comes before the ids.
        changes: the mistakes, in steps.
        only: the adapter in which they show, if not in all.
        table: has the program whose steps these are, if the problem's `build` does not make one.
    """
    known = set[str]()
    for change in changes:
        if change.id not in known:
            known.add(change.id)
            step = change.at(change.numbers[len(change.numbers) // 2]) if change.numbers else change
            program, parts = (partial(table.call, [step]), {}) if table else (None, {step.step: step})
            yield Misconception(f"{prefix}-{change.id}", program, parts, only=only)


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


def whole(program: Part) -> Build:
    """Builds a program that calls none of those that it needs."""
    return lambda earlier: program


@dataclass(frozen=True)
class Room:
    """All that staff know about one problem.

    Args:
        answers: for adapters, functions of the same name that give the right answer: tensors of float64, for such.
        public: the cases that students have.
        hidden: those that they do not have.
        build: makes the right program, a `functools.partial`, of those of the problems that it needs.
        adapters: the `run_*` functions of a submission that has this program.
        styles: the same program, built in other ways that are right.
        mistakes: wrong ones.
        table: the mistakes that may be carried forward to the problems that build on this one, which has one adapter.
        telling: public tests whose answers tell one mistake from another. Nothing hidden may be asked meanwhile.
        figure: what students see of their answers, beside what is right, when a test of the problem fails.
        sentences: headlines of its tests with something in them that a submission chose, as regular expressions, and
            what feedback on a hidden test says in their place.
        outputs: the names of what an adapter gives, "answer" and then others in alphabetical order, as files keep them.
    """

    answers: Sequence[Adapter]
    public: Sequence[CaseSpec]
    hidden: Sequence[CaseSpec]
    build: Build
    adapters: Callable[[Part], Mapping[str, Adapter]]
    styles: Mapping[str, Build] = field(default_factory=dict)
    mistakes: Sequence[Misconception] = ()
    table: Table | None = None
    telling: Sequence[str] = ()
    figure: Figure | None = None
    sentences: Sequence[tuple[str, str]] = ()
    outputs: Sequence[str] = ("answer",)

    @property
    def calls(self) -> Sequence[str]:
        """The names of its adapters."""
        return tuple(self.adapters(print))


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
    seen: set[str] = set()
    for kind in ("public", "hidden"):
        _check_names({id: getattr(room, kind) for id, room in rooms.items()}, kind)
    for id, room in rooms.items():
        for adapter in load_room(id).steps:
            if adapter not in room.calls:
                raise SuiteError(f"cs336_kit/problems/{id} has steps of {adapter}, which is not among its adapters")
        if list(room.outputs) != ["answer", *sorted(room.outputs[1:])]:
            raise SuiteError(f'the room of {id} has the outputs {", ".join(room.outputs)}, expected "answer" first')
        for reference in room.answers:
            if reference.__name__ not in room.calls:
                raise SuiteError(f"the room of {id} answers {reference.__name__}, which is not among its adapters")
        for mistake in room.mistakes:
            _check_misconception(mistake, seen)
            seen.add(mistake.id)
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
    """The right answer of an adapter.

    Raises:
        KeyError: no room has it.
    """
    return {answer.__name__: answer for room in load_rooms().values() for answer in room.answers}[call]


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


def _check_misconception(mistake: Misconception, seen: set[str]) -> None:
    for fine, expected in (
        (re.fullmatch(r"[a-z]+(-\w+)+", str(mistake.id)), "an id of some words: softmax-in-place"),
        (mistake.id not in seen, "an id that no other has"),
        (bool(mistake.program) != bool(mistake.parts), "a wrong program, or wrong parts of the right one"),
        (all(map(callable, mistake.parts.values())), "parts that can be called"),
    ):
        if not fine:
            raise SuiteError(f"the misconception {mistake.id!r}: expected {expected}")
