"""Counting how often the examination finds both of two mistakes in one program, as students make them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.case import Case, case_names, load_case
from cs336_kit.examination.problems import EXAMINATIONS
from cs336_staff.authoring.misconceptions import CATALOGUE
from cs336_staff.authoring.misconceptions.entry import Misconception, together
from cs336_staff.release.stages import Stage

# A finite number in the place of -inf is found by its size, or by what becomes of a row that is hidden throughout.
ALIKE: dict[str, str] = dict.fromkeys(
    ("attention-mask-fill", "attention-mask-fill-finite", "attention-nothing-mean", "blockwise-fill"), "finite fill"
)
ENOUGH = 0.9


@dataclass
class Found:
    """Count the pairs in each problem, and those of which both mistakes are found."""

    pairs: Counter[str] = field(default_factory=Counter)
    both: Counter[str] = field(default_factory=Counter)


def verify_pairs(root: Path, stage: Stage) -> Found:
    """Examine every program that has two mistakes of the catalogue in different stages.

    Left out are mistakes that share their only finding, and those of which one hides the other: with both the answers
    are those with one of them alone. A mistake in softmax counts as one of attention, which uses it.

    Args:
        root: the folder of the assignment, whose stored cases tell what hides what.
        stage: is told how far it is, and when too few are found.
    """
    cases = [load_case(root / "fixtures", name) for name in case_names(root / "fixtures", "*/*")]
    found = Found()
    for first, second in stage.track([*combinations(CATALOGUE.values(), 2)]):
        both = together(first, second)
        if both is None:
            continue
        problem = second.problem
        one, other = (_facts_alone(each.id, problem) for each in (first, second))
        if not one or not other or len(one | other) < 2:
            continue
        known = one if first.problem == "softmax" else set[str]()
        if any(_are_both(one, other, known | facts) for facts in _facts_so_far(both, problem)):
            found.both[problem] += 1
        else:
            answers = _answers(both, problem, cases)
            hidden = [each for each in (first, second) if _same(answers, _answers(each, problem, cases))]
            if first in hidden or (hidden and first.problem == problem):
                continue
        found.pairs[problem] += 1
    pairs, both = found.pairs.total(), found.both.total()
    if both < ENOUGH * pairs:
        stage.error(f"of {pairs} pairs of misconceptions both are found in {both}")
    return found


@cache
def _facts_alone(id: str, problem: str) -> set[str]:
    softmax = _facts(CATALOGUE[id], "softmax") if CATALOGUE[id].problem == "softmax" else set()
    return softmax | _facts(CATALOGUE[id], problem)


def _are_both(one: set[str], other: set[str], facts: set[str]) -> bool:
    return any(a != b for a in one & facts for b in other & facts)


def _facts(program: Misconception, problem: str) -> set[str]:
    """List what the examinations of a problem find in a program."""
    return set[str]().union(*_facts_so_far(program, problem))


def _facts_so_far(program: Misconception, problem: str) -> Iterator[set[str]]:
    """The same after each examination."""
    facts = set[str]()
    for call, examine in EXAMINATIONS[problem].items():
        if call in program.adapters:
            facts |= {ALIKE.get(finding.id, finding.id) for finding in examine(program.adapters[call])}
            yield facts


def _answers(program: Misconception, problem: str, cases: list[Case]) -> list[Any]:
    """The answers of a program in a problem, or the type of what it raises."""
    answers = []
    for case in (case.copy() for case in cases if case.call in EXAMINATIONS[problem].keys() & program.adapters):
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
    return torch.allclose(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)
