"""Errors carried forward: whoever builds a right multi-head attention on a wrong attention pays for attention alone.

A test that failed is run again as if other answers were right: those of a program that has a known fault in another
problem, an entry of the catalogue of misconceptions, which the submission has there too. If it passes, nothing but that
fault is wrong with it. What is expected comes from the catalogue, never from the submission, so that no answer can be
made up to fit: on an attention of zeros every multi-head attention is right, and zeros are not in the catalogue.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from cs336_kit.engine.case import Case
from cs336_kit.engine.result import Check, Outcome, Result
from cs336_kit.engine.suite import Suite, Test
from cs336_staff.authoring.misconceptions import CATALOGUE
from cs336_staff.authoring.misconceptions.entry import Misconception
from cs336_staff.authoring.stored_cases import answers_of

# The tests whose answers tell which fault a submission has in a problem. They are public: what a submission prints
# while public tests run is shown to students, so nothing hidden may be asked meanwhile.
TELLING = {
    "softmax": ("test_softmax[2d-first-dim]", "test_softmax[3d-middle-dim]", "test_softmax[3d-last-dim]"),
    "scaled_dot_product_attention": (
        "test_scaled_dot_product_attention[3d-no-mask]",
        "test_scaled_dot_product_attention[3d-causal]",
        "test_4d_scaled_dot_product_attention[4d-no-mask]",
    ),
    "linear": ("test_linear[3d]", "test_linear[square]"),
    "rope": ("test_rope[spaced]", "test_rope[permuted]", "test_rope[per-batch]"),
}
# On these some wrong multi-head attention gives the answers of the right one: without a mask in attention nobody sees
# whether there is a causal one. They are not carried forward.
BLIND = {
    "softmax-all-dims",
    "attention-mask-ignored",
    "attention-mask-on-values",
    "attention-values-are-keys",
    "linear-transposed",
    "linear-reshaped",
    "rope-positions-ignored",
    "rope-positions-of-first-batch",
    "rope-positions-from-first",
    "rope-skipped",
}


@dataclass(frozen=True)
class CarriedForward:
    """The faults that a submission may carry forward from one problem to the next.

    Args:
        suite: the tests; they call the submission.
    """

    suite: Suite

    def judge(self, test: Test, result: Result) -> Result:
        """`result`, or a pass if the test fails for a fault of another problem alone."""
        if result.check in (Check.ANSWER, Check.GRADIENT, Check.PROPERTY):
            for fault in self.faults:
                if fault.problem != test.problem and self._has(fault, test):
                    why = f"passes but for a fault that is charged in {fault.problem}: it {fault.what}"
                    passed = Outcome.PASSED
                    return replace(result, outcome=passed, check=None, headline="", details=(), inputs=(), staff=why)
        return result

    @cached_property
    def faults(self) -> Sequence[Misconception]:
        """Those of the catalogue that the submission has."""
        return [fault for problem in TELLING for fault in self._faults_of(problem)]

    def _faults_of(self, problem: str) -> Iterator[Misconception]:
        tests = [test for test in self.suite.tests if test.name in TELLING[problem]]
        if not all(self.suite.run(test).passed for test in tests):
            for fault in CATALOGUE.values():
                if fault.problem == problem and fault.id not in BLIND and all(self._has(fault, test) for test in tests):
                    yield fault

    def _has(self, fault: Misconception, test: Test) -> bool:
        """Whether the answers in a test are those of a program with this fault."""
        try:
            cases = [with_fault(case, fault) for case in test.cases()]
        except Exception:  # such a program raises
            return False
        return self.suite.run(replace(test, stored=None, drawn=Known(cases)), search=False).passed


@dataclass(frozen=True)
class Known:
    """Cases that stand where a test has drawn ones."""

    cases: Sequence[Case]

    def examples(self) -> Sequence[Case]:
        return self.cases

    def search(self, attempt: object) -> None:
        """Do nothing: there is no smaller one."""


def with_fault(case: Case, fault: Misconception) -> Case:
    """The case, as if the answers of a program with this fault were right."""
    right = answers_of(fault.adapters[case.call], case.inputs, case.gradients, case.cotangent)
    return replace(case, expected=right)
