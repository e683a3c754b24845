"""The diagnosis of the student's attention on some calls: that of a failing test, with what the examination finds.

Nothing else in the lab says why something is wrong.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from rich.console import RenderableType
from rich.text import Text
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from cs336_kit.checking.board import Lines, said_once
from cs336_kit.engine.case import GRADIENT, Case
from cs336_kit.engine.result import Explanation, Result
from cs336_kit.engine.suite import Suite, Test
from cs336_kit.examination.explain import explain
from cs336_kit.examination.silence import silence
from cs336_kit.lab.student import PROBLEM, Student


class Diagnosis(NamedTuple):
    """The results of tests on some calls, and what the examination finds if any of them failed."""

    results: list[Result]
    explanations: Sequence[Explanation]

    @property
    def wrong(self) -> list[Result]:
        return [result for result in self.results if result.is_wrong]

    def tell(self) -> Iterator[RenderableType]:
        """Tell what is wrong with the first wrong answer, then what explains it; else the smallest wrong row."""
        first = self.wrong[0]
        on_paper = () if self.explanations else ("No experiment explains it.", *first.on_paper)
        yield Lines([first.headline], "bold red")
        yield Lines([*first.details, *on_paper], margin="  ")
        yield from self.explain()

    def explain(self) -> Iterator[RenderableType]:
        """Tell what explains the wrong answers, without what the first one says of itself."""
        shown = {line.strip() for first in self.wrong[:1] for line in (first.headline, *first.details)}
        for explanation in self.explanations:
            yield Text("")
            yield Lines(said_once(explanation.lines, shown), "bold")


def diagnose(student: Student, cases: Sequence[Case], last_digits: bool = False) -> Diagnosis:
    """Test the student's attention on the cases, with their gradients; code that raises an error fails the test.

    To three digits, of which rounding leaves more only where inputs are not large; or to the last ones.
    """

    def check(case: Case) -> None:
        case.require_gradients()
        answer = student.adapters.run_scaled_dot_product_attention(case.Q, case.K, case.V, case.mask)
        if case.gradients:
            case.check_gradients(answer)
        else:
            case.check(answer)
        if last_digits:
            case.check_to_the_last_digit(answer)

    tests = [Test(case.name, check, ("", 0), stored=lambda case=case: case, problem=PROBLEM) for case in cases]
    suite = Suite(student.root, {}, tests, student.adapters)
    with silence():
        results = [suite.run(test) for test in tests]
    return Diagnosis(results, explain(suite, results))


def set_beside_pytorch(call: Case, cotangent: Tensor | None = None) -> Case:
    """The call with what PyTorch's own attention answers in float64, and its gradients for this one of the answer."""
    leaves = [call.inputs[name].detach().double().requires_grad_() for name in "QKV"]
    answer = scaled_dot_product_attention(*leaves, attn_mask=call.mask)
    expected = {"answer": answer.detach()}
    if cotangent is not None:
        loss = (answer * cotangent).sum()  # given a gradient, autograd imports sympy, which takes half a second
        gradients = torch.autograd.grad(loss, leaves)
        expected |= {GRADIENT + name: x for name, x in zip("QKV", gradients, strict=True)}
    return replace(call, cotangent=cotangent, expected=expected)
