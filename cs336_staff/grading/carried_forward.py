"""Errors carried forward: whoever builds a right multi-head attention on a wrong attention pays for attention alone.

A test that failed is run again as if other answers were right: those of a program that has the faults of the submission
in earlier problems, and no other. If it passes, nothing but these faults is wrong with it. The faults are found by a
search (`authoring/search.py`), which puts them together from the mistakes that it knows: what is expected comes from
our program and never from the submission, so that no answer can be made up to fit. The search is counted and not timed,
so that a verdict is the same under any load.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from inspect import signature
from itertools import combinations
from typing import Any

import torch

from cs336_kit.engine.assignment import find_needs
from cs336_kit.engine.case import Case
from cs336_kit.engine.compare import same
from cs336_kit.engine.failure import Stopped
from cs336_kit.engine.result import Check, Outcome, Result
from cs336_kit.engine.suite import Suite, Test
from cs336_staff.authoring.programs import CATALOGUE, inherited_parts, put_together
from cs336_staff.authoring.room import Adapter, Misconception, load_rooms, reference_of
from cs336_staff.authoring.search import Search, ask_in
from cs336_staff.authoring.stored_cases import answers
from cs336_staff.authoring.table import Answers, Table

NUMBERS = (Check.ANSWER, Check.GRADIENT, Check.PROPERTY)  # what a fault may explain

# Wrong programs of a later problem, of the fifty or more in the catalogue, that may look right on a fault in an earlier
# one. Some do nearly the same in another place: whoever ignores positions in RoPE may do so in multi-head attention.
MOST_UNSEEN = 3


class _OursError(BaseException):
    """A test could not be run again, by no fault of the submission: no `except Exception` may make a grade of that."""


@dataclass
class CarriedForward:
    """The faults that a submission may carry forward from one problem to the next, for one run of its tests.

    Which fault it has, its answers to the calls of the search and its public tests decide: a fault counts only in a
    problem where a telling test has failed, and so is paid for.

    Args:
        suite: the tests; they call the submission.
        run: runs a test again.
        begin: called with the name of a test, or of a search, before what it calls is called.
        passed: of the tests that have run, by name, whether they passed.
        known: the fault in each problem that was searched, if one was found.
        hiding: faults, and a later problem, of which it is known whether they hide mistakes there.
    """

    suite: Suite
    run: Callable[[Test], Result]
    begin: Callable[[str], None]
    passed: dict[str, bool] = field(default_factory=dict)
    known: dict[str, Misconception | None] = field(default_factory=dict)
    hiding: dict[tuple[str, ...], bool] = field(default_factory=dict)

    def judge(self, test: Test, result: Result) -> Result:
        """`result`, or a pass if the test fails for faults in earlier problems alone.

        Call it with every result, in the order of the tests.
        """
        self.passed[test.name] = result.passed
        try:
            for faults in self._combine(self.find_faults(test, result)):
                if self._tells(test, as_if(test, put_together(faults))) and not self._hide(faults, test.problem):
                    charged = " and ".join(f"{fault.problem}: {fault.id}" for fault in faults)
                    why, passed = f"passes but for what is charged in {charged}", Outcome.PASSED
                    return replace(result, outcome=passed, check=None, headline="", details=(), inputs=(), staff=why)
        except _OursError as error:
            return replace(result, outcome=Outcome.ERROR, staff=str(error))
        return result

    def find_faults(self, test: Test, result: Result) -> list[Misconception]:
        """Look for the faults in earlier problems that may make a test fail, in those whose telling tests have run."""
        needs = find_needs(self.suite.problems, test.problem) if result.check in NUMBERS else []
        return [fault for need in needs if (fault := self._find_fault(need))]

    def _combine(self, found: Sequence[Misconception]) -> Iterator[Sequence[Misconception]]:
        """The faults with which to try a test, the fewest first: no two where one problem builds on the other.

        What a problem inherits is in the fault that is found in it.
        """
        problems = self.suite.problems
        for count in range(len(found)):
            for faults in combinations(found, count + 1):
                in_problems = {fault.problem for fault in faults}
                if not any(in_problems & {*find_needs(problems, each)} for each in in_problems):
                    yield faults

    def _find_fault(self, problem: str) -> Misconception | None:
        """The fault that explains all answers of the submission in a problem, once its telling tests have run.

        It must explain every other case of their functions as well.
        """
        room, tests = load_rooms()[problem], self._telling(problem)
        functions = {test.function for test in tests}
        tests = [test for test in self.suite.tests if test.function in functions]
        if problem not in self.known and room.table and all(test.name in self.passed for test in tests):
            self.known[problem] = None
            # A submission's objects may do anything when they are looked at, and a worker may be stopped.
            with suppress(Exception, Stopped, SystemExit):
                if not all(self.passed[test.name] for test in tests):
                    self.known[problem] = self._search(problem, room.table, tests)
        return self.known.get(problem)

    def _telling(self, problem: str) -> list[Test]:
        return [test for test in self.suite.tests if test.name in load_rooms()[problem].telling]

    def _search(self, problem: str, table: Table, tests: Sequence[Test]) -> Misconception | None:
        self.begin(name_search(problem))
        came = ask_for_faults(self.suite, problem)
        changes = Search(table, {call: answer.float() for call, answer in came.items()}).explain()
        if not changes:
            return None
        parts = {change.step: change for change in changes}
        fault = Misconception(", ".join(change.id for change in changes), parts=parts, problem=problem)
        return fault if self._explains(put_together([fault]), tests) else None

    def _hide(self, faults: Sequence[Misconception], problem: str) -> bool:
        key = (*(fault.problem for fault in faults), problem)
        if key not in self.hiding:
            self.hiding[key] = hide(faults, problem, self._telling(problem))
        return self.hiding[key]

    def _explains(self, program: Mapping[str, Adapter], tests: Sequence[Test]) -> bool:
        """Tell whether each test came out as with this program, and one of them tells it from others."""
        told = False
        for test in tests:
            cases = as_if(test, program)
            if self._tells(test, cases):
                told = True
            elif (cases and differ(test, cases)) or self.passed[test.name] != bool(cases):
                return False
        return told

    def _tells(self, test: Test, cases: Sequence[Case]) -> bool:
        """Tell whether the submission gives what is right in these cases, and not in the test's own.

        To run the test again would be a second chance if nothing else were right.
        """
        if not cases or not differ(test, cases):
            return False
        result = self.run(replace(test, stored=None, drawn=Known(cases)))
        if result.outcome is Outcome.ERROR:
            raise _OursError(result.staff or result.text)
        return result.passed


def name_search(problem: str) -> str:
    """Name the search for faults in a problem, as a test is named."""
    return f"faults in {problem}"


def ask_for_faults(suite: Suite, problem: str) -> Answers:
    """The answers of the submission to the calls of the search."""
    room = load_rooms()[problem]
    assert room.table
    (call,) = room.calls
    names = [*signature(reference_of(call)).parameters]

    def ask(*inputs: Any) -> Any:
        """Call the submission; a function that is not written raises, as other mistakes do."""
        return getattr(suite.calls, call)(**dict(zip(names, inputs, strict=False)))

    return ask_in(torch.float32, ask, room.table, room.table.calls)


@dataclass(frozen=True)
class Known:
    """Stored cases in place of a test's drawn ones."""

    cases: Sequence[Case]

    def examples(self) -> Sequence[Case]:
        return self.cases


def hide(faults: Sequence[Misconception], problem: str, tests: Sequence[Test]) -> bool:
    """Tell whether, on these faults, many wrong programs of a later problem give in a test what the right one does.

    Without a mask in attention, for one, nobody sees whether multi-head attention has a causal one. Tried is every
    misconception in what the later problem does itself; where the right program raises, nothing shows.
    """
    faulty, inherited = put_together(faults), inherited_parts(problem)
    pairs = [(case, other) for test in tests for case, other in zip(test.cases(), as_if(test, faulty), strict=False)]
    unseen = 0
    for wrong in CATALOGUE.values():
        if wrong.problem == problem and not wrong.parts.keys() & inherited:
            also = put_together([*faults, wrong])
            unseen += any(gives(also, other) and not gives(wrong.adapters, case) for case, other in pairs)
    return unseen > MOST_UNSEEN or not pairs


def gives(program: Mapping[str, Adapter], case: Case) -> bool:
    """Tell whether a program gives what is right in a case."""
    case = case.copy()
    with suppress(Exception):  # of programs that are wrong some raise
        case.check(program[case.call](**case.inputs))
        return True
    return False


def as_if(test: Test, program: Mapping[str, Adapter]) -> list[Case]:
    """The cases of a test, as if the answers of a faulty program were right; none if it raises or gives NaN."""
    with suppress(Exception):
        cases = [with_fault(case, program) for case in test.cases()]
        return cases if all(x.isfinite().all() for case in cases for x in case.expected.values()) else []
    return []


def with_fault(case: Case, program: Mapping[str, Adapter]) -> Case:
    """The case, as if the answers of a faulty program were right."""
    right = answers(case.call, case.inputs, case.gradients, case.cotangent, program[case.call])
    return replace(case, expected=right)


def differ(test: Test, cases: Sequence[Case]) -> bool:
    """Tell whether what is right in a case of the test is wrong in one of these in its place."""
    return any(
        not same(other.expected[what], right, case.tolerance[what], of=1.0).all()
        for case, other in zip(test.cases(), cases, strict=True)
        for what, right in case.expected.items()
    )
