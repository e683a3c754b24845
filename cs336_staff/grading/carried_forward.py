"""Errors carried forward: whoever builds a right multi-head attention on a wrong attention pays for attention alone.

A test that failed is run again as if other answers were right: those of a program that has a known fault in another
problem, an entry of the catalogue of misconceptions, which the submission has there too. If it passes, nothing but that
fault is wrong with it. What is expected comes from the catalogue, never from the submission, so that no answer can be
made up to fit: on an attention of zeros every multi-head attention is right, and zeros are not in the catalogue.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from cs336_kit.engine.case import Case
from cs336_kit.engine.result import Check, Outcome, Result
from cs336_kit.engine.suite import Suite, Test
from cs336_staff.authoring.programs import CATALOGUE
from cs336_staff.authoring.room import Misconception, load_rooms
from cs336_staff.authoring.stored_cases import answers


class _OursError(Exception):
    """A test could not be run again, by no fault of the submission."""


@dataclass
class CarriedForward:
    """The faults that a submission may carry forward from one problem to the next, for one run of its tests.

    Which faults it has, its public tests decide: a fault counts only in a problem where a telling test has failed, and
    so is paid for.

    Args:
        suite: the tests; they call the submission.
        passed: of the tests that have run, by name, whether they passed.
    """

    suite: Suite
    passed: dict[str, bool] = field(default_factory=dict)
    known: dict[str, list[Misconception]] = field(default_factory=dict)

    def judge(self, test: Test, result: Result) -> Result:
        """`result`, or a pass if the test fails for a fault of another problem alone.

        Call it with every result, in the order of the tests.
        """
        self.passed[test.name] = result.passed
        if result.check in (Check.ANSWER, Check.GRADIENT, Check.PROPERTY):
            try:
                for fault in self.faults():
                    if fault.problem != test.problem and self._has(fault, test):
                        why = f"passes but for a fault that is charged in {fault.problem}: {fault.id}"
                        passed = Outcome.PASSED
                        return replace(
                            result, outcome=passed, check=None, headline="", details=(), inputs=(), staff=why
                        )
            except _OursError as error:
                return replace(result, outcome=Outcome.ERROR, staff=str(error))
        return result

    def faults(self) -> list[Misconception]:
        """Those of the catalogue that the submission has in the problems whose telling tests have all run."""
        for problem, room in load_rooms().items():
            if room.telling and problem not in self.known and all(name in self.passed for name in room.telling):
                passed = all(map(self.passed.get, room.telling))
                self.known[problem] = [] if passed else [*self._faults_of(problem, room.telling)]
        return [fault for faults in self.known.values() for fault in faults]

    def _faults_of(self, problem: str, telling: Sequence[str]) -> Iterator[Misconception]:
        tests = [test for test in self.suite.tests if test.name in telling]
        for fault in CATALOGUE.values():
            if fault.problem == problem and fault.carried and self._explains(fault, tests):
                yield fault

    def _explains(self, fault: Misconception, tests: Sequence[Test]) -> bool:
        """Tell whether each test came out as with this fault, and one of them tells it from others."""
        told = False
        for test in tests:
            has = self._has(fault, test)
            if not (self.passed[test.name] if has is None else has):
                return False
            told |= has is True
        return told

    def _has(self, fault: Misconception, test: Test) -> bool | None:
        """Tell whether the answers in a test are those of a program with this fault; None if those are right.

        To run the test again would be a second chance then.
        """
        try:
            cases = [with_fault(case, fault) for case in test.cases()]
        except Exception:  # such a program raises
            return False
        if not any(differ(*pair) for pair in zip(test.cases(), cases, strict=True)):
            return None
        result = self.suite.run(replace(test, stored=None, drawn=Known(cases)))
        if result.outcome is Outcome.ERROR:
            raise _OursError(result.staff or result.text)
        return result.passed


@dataclass(frozen=True)
class Known:
    """Stored cases in place of a test's drawn ones."""

    cases: Sequence[Case]

    def examples(self) -> Sequence[Case]:
        return self.cases


def with_fault(case: Case, fault: Misconception) -> Case:
    """The case, as if the answers of a program with this fault were right."""
    right = answers(case.call, case.inputs, case.gradients, case.cotangent, fault.adapters[case.call])
    return replace(case, expected=right)


def differ(case: Case, other: Case) -> bool:
    """Tell whether what is right for one is wrong for the other."""
    tolerance = case.tolerance
    return any(((other.expected[what] - right).abs() > tolerance[what]).any() for what, right in case.expected.items())
