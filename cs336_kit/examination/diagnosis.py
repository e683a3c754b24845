"""Which known mistake explains the tests that fail.

One test says which mistakes give the answer that it saw. The name given for a problem is what explains every answer
that failed there and contradicts no test that passed.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from cs336_kit.engine.case import Case, Outcomes
from cs336_kit.engine.compare import WrongAnswer
from cs336_kit.examination.relations import mask_of_rows, relations

MISTAKES_FILE = "misconceptions.json"

# Two programs with the same mistake differ by their rounding, which a mistake may make larger.
SLACK = 10
# One mistake among several is suspected from this many tests on.
FEWEST = 3


@dataclass(frozen=True)
class Mistake:
    """A known mistake, as a student reads of it.

    Args:
        id: its name in the cases.
        name: what went wrong.
        hint: a question that leads to it.
        section: where docs/assignment.md explains it.
    """

    id: str
    name: str
    hint: str
    section: str


@dataclass(frozen=True)
class Evidence:
    """What one test says about the known mistakes.

    Args:
        case: what the test ran on.
        passed: whether it passed.
        fits: the mistakes that would have ended the test as it ended.
        weak: those among them that any answer so wrong would fit, as one of NaN alone.
        relations: simple relations between the answer and the right one, each with a sentence.
        raised: whether an error of the student's code ended the test, so that there was no answer to look at.
    """

    case: Case
    passed: bool
    fits: frozenset[str] = frozenset()
    weak: frozenset[str] = frozenset()
    relations: tuple[str, ...] = ()
    raised: bool = False

    @cached_property
    def contradicts(self) -> frozenset[str]:
        """The mistakes that would have failed this test, which passed."""
        if not self.passed:
            return frozenset()
        checks = set(self.case.checks)
        return frozenset(mistake for mistake, outcomes in self.case.wrong().items() if outcomes.keys() & checks)


def load_mistakes(fixtures: Path) -> dict[str, Mistake]:
    """The known mistakes by id; none where nobody wrote them down."""
    path = fixtures / MISTAKES_FILE
    if not path.exists():
        return {}
    return {id: Mistake(id, **entry) for id, entry in json.loads(path.read_text(encoding="utf-8")).items()}


def look(case: Case, error: BaseException | None) -> Evidence:
    """What a test on `case` says, which ended with `error` or passed."""
    if error is None:
        return Evidence(case, passed=True)
    if not isinstance(error, WrongAnswer):
        check = case.checks[-1] if case.checks else "answer"
        return Evidence(case, passed=False, fits=_same_word(case, check, "raises"), raised=True)
    check = case.checks[-1]
    if not isinstance(error.outcome, Tensor):
        return Evidence(case, passed=False, fits=_same_word(case, check, error.outcome))
    expected, tolerance = case.expected[check], case.tolerance[check]
    inputs = case.original if check == "answer" else {}  # a gradient has other axes
    found = relations(error.outcome, expected, case.dtype, tolerance, inputs)
    is_stored = _recogniser(error.outcome, expected, tolerance, mask_of_rows(inputs))
    same = {
        mistake
        for mistake, outcomes in case.wrong().items()
        if _fails_first(outcomes, check) and isinstance(stored := outcomes[check], Tensor) and is_stored(stored)
    }
    told = {mistake for sign, sentence in found.items() if sentence for mistake in _same_word(case, check, sign)}
    untold = {mistake for sign, sentence in found.items() if not sentence for mistake in _same_word(case, check, sign)}
    if not error.outcome.isfinite().any():
        same, untold = set(), untold | same
    return Evidence(
        case,
        passed=False,
        fits=frozenset(same | told | untold),
        weak=frozenset(untold - same - told),
        relations=tuple(filter(None, found.values())),
    )


def explain(problem: Sequence[Evidence], everything: Iterable[Evidence]) -> list[str]:
    """The ids of the mistakes that explain what failed in one problem; several when the tests cannot tell them apart.

    An answer must be what the mistake gives; an error may have another cause, unless there are only errors. Where
    several are left, a mistake that fits the other problems too goes before one that does not.

    Args:
        problem: what the tests of the problem say.
        everything: what all tests say, of every problem.
    """
    failed = [evidence for evidence in problem if not evidence.passed and evidence.case.wrong()]
    answers = [evidence for evidence in failed if not evidence.raised]
    if not failed or (not answers and len(failed) == len(problem)):
        return []  # errors alone, everywhere: the errors say it better
    candidates = frozenset.intersection(*(evidence.fits for evidence in answers or failed))
    candidates = candidates.difference(*(evidence.contradicts for evidence in problem))
    candidates &= frozenset().union(*(evidence.fits - evidence.weak for evidence in answers or failed))
    if len(candidates) < 2:
        return sorted(candidates)

    everything = list(everything)
    contradictions = [evidence.contradicts for evidence in everything]

    def misfit(mistake: str) -> tuple[int, int]:
        contradicted = sum(mistake in each for each in contradictions)
        unexplained = sum(not evidence.passed and mistake not in evidence.fits for evidence in everything)
        return contradicted, unexplained

    least = min(map(misfit, candidates))
    return sorted(mistake for mistake in candidates if misfit(mistake) == least)


def suspect(evidence: Evidence, problem: Sequence[Evidence]) -> list[str]:
    """The ids of the mistakes that explain one test, where none explains all that failed in its problem.

    One test, or one in half precision, proves little: a suspect explains `FEWEST` and contradicts none.
    """
    ruled_out = frozenset().union(*(each.contradicts for each in problem))
    times = Counter(id for each in problem if not each.raised for id in each.fits - each.weak)
    return sorted(id for id in evidence.fits - ruled_out if times[id] >= FEWEST)


def _same_word(case: Case, check: str, word: str | None) -> frozenset[str]:
    return frozenset(
        mistake
        for mistake, outcomes in case.wrong().items()
        if _fails_first(outcomes, check) and isinstance(outcomes[check], str) and outcomes[check] == word
    )


def _fails_first(outcomes: Outcomes, check: str) -> bool:
    """Whether this is the check that ends a test, which does not go on after the first that fails."""
    return check in outcomes and (check == "inputs" or next(iter(outcomes)) == check)


def _recogniser(answer: Tensor, expected: Tensor, tolerance: float, mask: Tensor | None) -> Callable[[Tensor], bool]:
    """A function that says whether `answer` is a stored wrong answer.

    Where the stored answer is NaN, others may have caught the NaN. Rows with nothing to attend to are a mistake of
    their own, which may come on top of another: they count only when the other rows are right.
    """
    if answer.shape != expected.shape:
        return lambda stored: (
            _same_form(answer, stored)
            and torch.allclose(answer.double(), stored.double(), rtol=1e-3, atol=SLACK * tolerance, equal_nan=True)
        )
    got, rows = answer.detach().double(), ...
    if mask is not None and answer.ndim > 1:
        something = mask.any(-1).expand(answer.shape[:-1])
        if _differs(got[something], expected[something], tolerance):
            got, expected, rows = got[something], expected[something], something
    finite = got.isfinite()

    def is_stored(stored: Tensor) -> bool:
        if not _same_form(answer, stored):
            return False
        wrong = stored[rows].double()
        known = wrong.isfinite()
        if known.all() and finite.all():  # nearly always, and quicker than to pick all of them
            return _close(got, wrong, expected, tolerance)
        if torch.equal(finite, known):
            if not known.any():
                return True
        elif not _differs(wrong[known], expected[known], tolerance):
            return False
        return _close(got[known], wrong[known], expected[known], tolerance)

    return is_stored


def _same_form(answer: Tensor, stored: Tensor) -> bool:
    return answer.shape == stored.shape and answer.dtype == stored.dtype


def _close(got: Tensor, wrong: Tensor, expected: Tensor, tolerance: float) -> bool:
    distance = float((wrong - expected).abs().max())
    larger = max(1.0, float(wrong.abs().max()) / max(float(expected.abs().max()), 1e-300))
    allowed = SLACK * tolerance * larger
    if distance > tolerance:
        allowed = min(allowed, distance / 4)
    return not _differs(got, wrong, allowed)


def _differs(a: Tensor, b: Tensor, tolerance: float) -> bool:
    return not bool(((a - b).abs() <= tolerance).all())
