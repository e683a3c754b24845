"""Whether the examination finds both of two mistakes in one program, as students make them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.case import Case, case_names, load_case
from cs336_kit.examination.problems import EXAMINATIONS
from cs336_staff.authoring.misconceptions import CATALOGUE
from cs336_staff.authoring.misconceptions.entry import Misconception, together

# A finite number in the place of -inf is found by its size, or by what becomes of a row that is hidden throughout.
ALIKE: dict[str, str] = dict.fromkeys(
    ("attention-mask-fill", "attention-mask-fill-finite", "attention-nothing-mean", "blockwise-fill"), "finite fill"
)
ENOUGH = 0.9


@dataclass
class Found:
    """How many pairs there are in each problem, and of how many both mistakes are found."""

    pairs: Counter[str] = field(default_factory=Counter)
    both: Counter[str] = field(default_factory=Counter)

    @property
    def is_enough(self) -> bool:
        return self.both.total() >= ENOUGH * self.pairs.total()


def verify_pairs(root: Path) -> Found:
    """Examine every program that has two mistakes of the catalogue in different stages.

    Left out are mistakes that share their only finding, and those of which one hides the other: with both the answers
    are those with one of them alone. A mistake in softmax counts as one of attention, which uses it.

    Args:
        root: the folder of the assignment, whose stored cases tell what hides what.
    """
    cases = [load_case(root / "fixtures", name) for name in case_names(root / "fixtures", "*/*")]
    alone: dict[str, _Seen] = {}
    found = Found()
    for first, second, both in _pairs():
        for each in (first, second):
            if each.id not in alone:
                alone[each.id] = _Seen.of(each, second.problem, cases)
        one, other = alone[first.id], alone[second.id]
        if len(one.facts | other.facts) < 2 or not one.facts or not other.facts:
            continue
        seen = _Seen.of(both, second.problem, cases)
        if seen.answers_like(one) or (first.problem == second.problem and seen.answers_like(other)):
            continue
        found.pairs[second.problem] += 1
        found.both[second.problem] += any(a != b for a in one.facts & seen.facts for b in other.facts & seen.facts)
    return found


def _pairs() -> Iterator[tuple[Misconception, Misconception, Misconception]]:
    for first, second in combinations(CATALOGUE.values(), 2):
        if both := together(first, second):
            yield first, second, both


@dataclass(frozen=True)
class _Seen:
    """What a program answers to the stored cases, by adapter, and what its examinations find."""

    answers: dict[str, list[Any]]
    facts: set[str]

    @classmethod
    def of(cls, entry: Misconception, problem: str, cases: list[Case]) -> "_Seen":
        """In a problem, and in softmax."""
        examinations = EXAMINATIONS["softmax"] | EXAMINATIONS[problem]
        examined = [(call, run) for call, run in entry.adapters.items() if call in examinations]
        found = [finding.id for call, run in examined for finding in examinations[call](run)]
        answers = {call: [_answer(run, case.copy()) for case in cases if case.call == call] for call, run in examined}
        return cls(answers, {ALIKE.get(id, id) for id in found})

    def answers_like(self, other: "_Seen") -> bool:
        """Whether both give the same answers in attention and in what is built on it."""
        calls = (self.answers.keys() & other.answers.keys()) - {"run_softmax"}
        pairs = [pair for call in calls for pair in zip(self.answers[call], other.answers[call], strict=True)]
        return all(_same(*pair) for pair in pairs)


def _answer(run: Any, case: Case) -> Any:
    try:
        return run(**case.inputs)
    except Exception as error:
        return type(error)


def _same(one: Any, other: Any) -> bool:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return one is other
    if (one.shape, one.dtype, one.requires_grad) != (other.shape, other.dtype, other.requires_grad):
        return False
    return torch.allclose(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)
