"""The examination that belongs to each problem, and what it explains of the tests that failed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cs336_kit.engine.case import Case, CaseError
from cs336_kit.engine.failure import Stopped, describe
from cs336_kit.engine.result import Check, Explanation, Outcome, Result
from cs336_kit.engine.suite import Suite, Test
from cs336_kit.examination.attention import examine_attention
from cs336_kit.examination.blockwise import examine_blockwise
from cs336_kit.examination.cross_attention import examine_cross_attention
from cs336_kit.examination.experiment import Finding
from cs336_kit.examination.linear import examine_linear
from cs336_kit.examination.module import examine_attention_module
from cs336_kit.examination.multihead import examine_multihead, examine_multihead_with_rope
from cs336_kit.examination.rope import examine_rope
from cs336_kit.examination.softmax import examine_softmax

MOST = 3  # findings that a student is shown of one problem

# For each problem, the adapters that are examined.
EXAMINATIONS: dict[str, dict[str, Callable[[Callable[..., Any]], list[Finding]]]] = {
    "softmax": {"run_softmax": examine_softmax},
    "scaled_dot_product_attention": {"run_scaled_dot_product_attention": examine_attention},
    "linear": {"run_linear": examine_linear},
    "rope": {"run_rope": examine_rope},
    "multihead_self_attention": {
        "run_multihead_self_attention": examine_multihead,
        "run_multihead_self_attention_with_rope": examine_multihead_with_rope,
    },
    "attention_module": {"run_scaled_dot_product_attention_module": examine_attention_module},
    "multihead_attention": {"run_multihead_attention": examine_cross_attention},
    "blockwise_attention": {"run_blockwise_attention": examine_blockwise},
}


def explain(suite: Suite, results: Sequence[Result], most: int = MOST) -> list[Explanation]:
    """Say what the examinations find in the problems of which a test failed, the most fundamental first.

    What is said of a problem depends on the student's functions, not on which of its tests were run: `pytest -x` says
    the same as a whole run. A finding that cannot make any of the suite's tests fail is left out, and so is what is not
    written yet.

    Args:
        suite: all tests of those problems, and the student's code.
        results: what became of the tests that were run.
        most: how many for each problem.
    """
    failed = {
        each.problem for each in results if each.outcome is Outcome.FAILED and each.check is not Check.NOT_WRITTEN
    }
    explanations = []
    for problem in dict.fromkeys(test.problem for test in suite.tests if test.problem in failed):
        cases = list(_cases(test for test in suite.tests if test.problem == problem))
        found: dict[str, Finding] = {}
        for adapter, examine in EXAMINATIONS.get(problem, {}).items():
            # A student's objects may do anything when they are looked at, and a worker may be stopped.
            with suppress(Exception, Stopped, SystemExit):
                for finding in examine(getattr(suite.calls, adapter)):
                    if _is_written(finding, suite.root) and any(
                        finding.touches(case) for case in cases if case.call == adapter
                    ):
                        found.setdefault(finding.id, finding)
        explanations += [Explanation(problem, id, _lines(each, suite.root)) for id, each in [*found.items()][:most]]
    return explanations


def _cases(tests: Iterable[Test]) -> Iterator[Case]:
    for test in tests:
        with suppress(CaseError):  # the test says so when it runs
            yield from test.cases()


def _is_written(finding: Finding, root: Path) -> bool:
    return not finding.error or describe(finding.error, root).check is not Check.NOT_WRITTEN


def _lines(finding: Finding, root: Path) -> tuple[str, ...]:
    lines = [finding.measured, finding.means]
    if finding.error:
        lines += [f"  {line}" for line in describe(finding.error, root).details]
    lines += [
        f"  Think: {finding.question}" if finding.question else "",
        f"  Read:  docs/assignment.md, section {finding.section}",
    ]
    return tuple(filter(None, lines))
