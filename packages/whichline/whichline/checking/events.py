"""The events of a run of the public tests. Each is written as a line of JSON, with the number of the run.

A `Result` says that a test has ended; at first there is one for each test, "not run", or "passed" if it is kept. A
`Finding` is written when it is found, and again when it explains more.
"""

import json
from dataclasses import asdict, dataclass, field

from whichline.engine.finding import Finding
from whichline.engine.result import Result, result_from_json


@dataclass(frozen=True)
class Busy:
    """The import of the student's files, a test or a search takes long."""

    seconds: float  # so far
    line: str = ""  # the student's line that it has reached, in words


@dataclass(frozen=True)
class Broken:
    """The tests could not start."""

    why: str


@dataclass(frozen=True)
class Printed:
    """The last lines that the student's code printed in the first failing test of a problem."""

    test: str
    lines: list[str]


@dataclass(frozen=True)
class Decided:
    """All tests of a problem have ended."""

    problem: str


@dataclass(frozen=True)
class Notes:
    """Lines to show below the results. Each list is empty, or has a title and lines."""

    forbidden_work: list[str] = field(default_factory=list)  # about forbidden functions in use
    deducted: dict[str, float] = field(default_factory=dict)  # the points that they cost, by problem
    undone: list[str] = field(default_factory=list)  # about settings that the files change for all code


@dataclass(frozen=True)
class Looking:
    """After all tests, a problem is searched for mistakes."""

    problem: str


@dataclass(frozen=True)
class Searched:
    """All problems have been searched."""

    errors: list[str]  # of the search itself, for staff


@dataclass(frozen=True)
class Ended:
    status: int  # of the process


Event = Busy | Broken | Result | Printed | Decided | Notes | Looking | Finding | Searched | Ended
KINDS = {each.__name__: each for each in (Busy, Broken, Printed, Decided, Notes, Looking, Searched, Ended)}


def write_event(run: int, event: Event) -> bytes:
    """The line that `read_event` reads."""
    fields = event.as_json() if isinstance(event, Result | Finding) else asdict(event)
    return json.dumps([run, type(event).__name__, fields]).encode() + b"\n"


def read_event(line: bytes) -> tuple[int, Event]:
    """The number of the run, and the event."""
    run, kind, fields = json.loads(line)
    if kind == "Result":
        return run, result_from_json(fields)
    return run, Finding.from_json(fields) if kind == "Finding" else KINDS[kind](**fields)
