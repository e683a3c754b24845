"""Right and wrong submissions, put together from the programs in the rooms: each is built on those before it."""

import runpy
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial

from cs336_kit.engine.assignment import FILE_NAME, SuiteError, find_needs
from cs336_staff.authoring.room import FOLDER, Adapter, Build, Misconception, Part, load_all_problems, load_rooms


def build_submission(builds: Mapping[str, Build] | None = None) -> dict[str, Adapter]:
    """Every `run_*` function of a submission that builds these problems like this, and is right otherwise."""
    programs: dict[str, Part] = {}
    adapters: dict[str, Adapter] = {}
    for id, room in load_rooms().items():
        build = (builds or {}).get(id, room.build)
        programs[id] = build(_Earlier(id, {need: programs[need] for need in find_needs(load_all_problems(), id)}))
        adapters |= room.adapters(programs[id])
    return adapters


class _Earlier(dict[str, Part]):
    """The programs that a problem may be built on."""

    def __init__(self, problem: str, programs: Mapping[str, Part]) -> None:
        super().__init__(programs)
        self.problem = problem

    def __missing__(self, need: str) -> Part:
        raise SuiteError(f"the room of {self.problem} builds on {need}, which is not among its `needs` in {FILE_NAME}")


def put_in_place(entry: Misconception, problem: str) -> Misconception:
    """A misconception in a problem, with its adapters and those of the problems that build on it, unless it is `alone`.

    A bonus problem is graded as it stands: nobody carries a fault into it.
    """
    problems = load_all_problems()
    later = {id for id, each in problems.items() if problem in find_needs(problems, id) and not each.bonus}
    reached = {problem} if entry.alone else {problem, *later}
    adapters = build_submission({problem: _build(entry, problem)})
    calls = (call for id, room in load_rooms().items() if id in reached for call in room.calls)
    return replace(entry, problem=problem, adapters={call: adapters[call] for call in calls})


def put_together(entries: Iterable[Misconception]) -> dict[str, Adapter]:
    """Every `run_*` function of a submission that has these misconceptions, in different problems."""
    return build_submission({entry.problem: _build(entry, entry.problem) for entry in entries})


def inherited_parts(problem: str) -> Collection[str]:
    """The parts of a problem's program that come from those that it builds on, whatever these are."""
    return getattr(load_rooms()[problem].build(defaultdict(lambda: print)), "keywords", {}).keys()


def _build(entry: Misconception, problem: str) -> Build:
    build = load_rooms()[problem].build
    return lambda earlier: entry.program or partial(build(earlier), **entry.parts)


def _styles() -> dict[str, Mapping[str, Adapter]]:
    rooms = load_rooms()
    names = dict.fromkeys(name for room in rooms.values() for name in room.styles)
    return {
        name: build_submission({id: room.styles[name] for id, room in rooms.items() if name in room.styles})
        for name in names
    }


# Every problem in its first style: the parts alone, which misconceptions exchange, may be right in full precision only.
RIGHT: Mapping[str, Adapter] = build_submission(
    {id: next(iter(room.styles.values()), room.build) for id, room in load_rooms().items()}
)

# name of a style -> the adapters of a submission that is written in it
RIGHT_STYLES: Mapping[str, Mapping[str, Adapter]] = {
    **(_styles() or {"right": RIGHT}),
    **{path.stem: {**RIGHT, **runpy.run_path(str(path))} for path in sorted(FOLDER.glob("right_programs/*.py"))},
}

CATALOGUE: Mapping[str, Misconception] = {
    entry.id: put_in_place(entry, id) for id, room in load_rooms().items() for entry in room.mistakes
}


def wrong_submission(id: str) -> Mapping[str, Adapter]:
    """Adapters that have this misconception and are right otherwise."""
    return {**RIGHT, **CATALOGUE[id].adapters}
