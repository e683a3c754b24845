"""Counting how often the examination finds both of two mistakes in one program, as students make them."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.case import Case, case_names, load_case
from cs336_kit.engine.room import load_room
from cs336_staff.authoring.programs import CATALOGUE, combine, expected_findings
from cs336_staff.authoring.room import Misconception, load_rooms
from cs336_staff.release.stages import Stage

ENOUGH = 0.9
CLOSE = 64  # in units of rounding: what two programs that do the same may differ by, of the largest number
MOST = 50  # pairs of one problem that are tried, evenly among all of them


@dataclass
class Found:
    """Count the pairs in each problem, and those of which both mistakes are found."""

    pairs: Counter[str] = field(default_factory=Counter)
    both: Counter[str] = field(default_factory=Counter)


def verify_pairs(root: Path, problems: Collection[str], stage: Stage) -> Found:
    """Examine programs that have two mistakes of the catalogue in different stages: a part of all there are.

    Left out are mistakes that share their only finding, and those of which one hides the other: with both the answers
    are those with one of them alone. A mistake in the only problem that another one needs counts as one of that.

    Args:
        root: the folder of the assignment, whose stored cases tell what hides what.
        problems: those to which the second mistake belongs.
        stage: is told how far it is, and when too few are found.
    """
    cases = [load_case(root / "fixtures", name) for name in case_names(root / "fixtures", "*/*")]
    pairs_of: dict[str, list[tuple[Misconception, Misconception]]] = {problem: [] for problem in problems}
    for first, second in combinations(CATALOGUE.values(), 2):
        if second.problem in problems and combine(first, second):
            pairs_of[second.problem].append((first, second))
    programs = [pair for pairs in pairs_of.values() for pair in pairs[:: math.ceil(len(pairs) / MOST) or 1]]
    found = Found()
    outcomes = stage.map(lambda pair: find_both(*pair, cases), programs, chunk=16)
    for (_, second), are_found in zip(programs, outcomes, strict=True):
        found.pairs[second.problem] += are_found is not None
        found.both[second.problem] += bool(are_found)
    pairs, both = found.pairs.total(), found.both.total()
    if len(problems) > 1 and both < ENOUGH * pairs:  # what is enough, is so for the whole catalogue
        stage.error(f"of {pairs} pairs of misconceptions both are found in {both}")
    return found


def find_both(first: Misconception, second: Misconception, cases: list[Case]) -> bool | None:
    """Tell whether two mistakes in one program are both found, or None if they do not count as two."""
    both = combine(first, second)
    assert both
    problem = second.problem
    one, other = (_facts_alone(each.id, problem) for each in (first, second))
    if not one or not other or len(one | other) < 2:
        return None
    known = one if first.problem != problem else set[str]()
    if any(_are_both(one, other, known | facts) for facts in _facts_so_far(both, problem)):
        return True
    answers = _answers(both, problem, cases)
    hidden = [each for each in (first, second) if _same(answers, _answers(each, problem, cases))]
    return None if first in hidden or (hidden and first.problem == problem) else False


@cache
def _facts_alone(id: str, problem: str) -> set[str]:
    """List what is found in a mistake alone: in its own problem what is expected there, which another stage checks."""
    own, expected = CATALOGUE[id].problem, expected_findings()
    found = {each for adapter in load_room(own).examinations for each in expected[adapter].get(id, [])}
    return _as_alike(found) | (set() if problem == own else _facts(CATALOGUE[id], problem))


def _are_both(one: set[str], other: set[str], facts: set[str]) -> bool:
    return any(a != b for a in one & facts for b in other & facts)


def _facts(program: Misconception, problem: str) -> set[str]:
    """List what the examinations of a problem find in a program."""
    return set[str]().union(*_facts_so_far(program, problem))


def _facts_so_far(program: Misconception, problem: str) -> Iterator[set[str]]:
    """The same after each examination."""
    facts = set[str]()
    for call, examine in load_room(problem).examinations.items():
        if call in program.adapters:
            facts |= _as_alike(finding.id for finding in examine(program.adapters[call]))
            yield facts


def _as_alike(found: Iterable[str]) -> set[str]:
    """Give findings that a room calls alike the same name."""
    alike = {id: f"alike in {other}" for other, room in load_rooms().items() for id in room.alike}
    return {alike.get(id, id) for id in found}


def _answers(program: Misconception, problem: str, cases: list[Case]) -> list[Any]:
    """The answers of a program in a problem, or the type of what it raises."""
    answers = []
    for case in (
        case.copy() for case in cases if case.call in load_room(problem).examinations.keys() & program.adapters
    ):
        try:
            answers.append(program.adapters[case.call](**case.inputs))
        except Exception as error:
            answers.append(type(error))
    return answers


def _same(some: list[Any], others: list[Any]) -> bool:
    return all(map(_alike, some, others))


def _alike(one: Any, other: Any) -> bool:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return one is other
    if (one.shape, one.dtype, one.requires_grad) != (other.shape, other.dtype, other.requires_grad):
        return False
    largest = float(other.nan_to_num(0, 0, 0).abs().max())
    return torch.allclose(one, other, rtol=0.0, atol=CLOSE * torch.finfo(one.dtype).eps * largest, equal_nan=True)
