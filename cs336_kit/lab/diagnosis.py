"""The diagnosis of the student's attention on some calls: that of a failing test, with what the examination finds.

Nothing else in the lab says why something is wrong.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from rich.console import RenderableType
from rich.text import Text
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from cs336_kit.checking.board import Lines, said_once
from cs336_kit.engine.case import GRADIENT, Case
from cs336_kit.engine.result import Explanation, Result
from cs336_kit.engine.suite import Calls, Suite, Test
from cs336_kit.examination.explain import explain
from cs336_kit.lab.student import Student, find_gradients

PROBLEM = "scaled_dot_product_attention"
ADAPTER = "run_scaled_dot_product_attention"


@dataclass(repr=False)
class BesidePyTorch(Case):
    """A call whose right answer is PyTorch's own; `bound` is all that an answer may be off."""

    @property
    def tolerance(self) -> dict[str, Tensor]:
        return self.bound


def set_beside_pytorch(
    name: str, inputs: dict[str, Tensor | None], within: float, cotangent: Tensor | None = None
) -> Case:
    """A case from Q, K, V and mask, whose right answer PyTorch's own attention gives in float64.

    Args:
        name: that of the case.
        inputs: what attention is called with, by name.
        within: how far each number may be off.
        cotangent: the gradient of the output; given one, the gradients of Q, K and V are in the case, too.
    """
    tensors = {key: x for key, x in inputs.items() if key != "mask" and x is not None}
    leaves = [x.detach().double().requires_grad_() for x in tensors.values()]
    answer = scaled_dot_product_attention(*leaves, attn_mask=inputs["mask"])
    expected = {"answer": answer.detach()}
    if cotangent is not None:
        gradients = find_gradients(answer, cotangent.double(), leaves)
        expected |= {GRADIENT + key: x for key, x in zip(tensors, gradients, strict=True)}
    bound = {what: torch.full_like(x, within) for what, x in expected.items()}
    return BesidePyTorch(name, ADAPTER, inputs, cotangent, expected, bound)


@dataclass(frozen=True)
class Diagnosis:
    """The results of tests on some calls, and what the examination finds if any of them failed."""

    results: Sequence[Result]
    explanations: Sequence[Explanation]

    @property
    def passed(self) -> bool:
        return all(result.passed for result in self.results)

    def explain(self, shown: Collection[str] = ()) -> Iterator[RenderableType]:
        """Tell what the examination finds, as pytest prints it, without what is `shown` above."""
        for explanation in self.explanations:
            yield Text("")
            yield Lines(said_once(explanation.lines, shown), "bold")

    def tell_failures(self) -> Iterator[RenderableType]:
        """Tell what is wrong with each answer, and what explains it; where nothing does, the smallest wrong row."""
        shown: set[str] = set()
        for result in self.results:
            if not result.passed:
                on_paper = () if self.explanations else ("No experiment explains it.", *result.on_paper)
                yield Lines([result.headline], "bold red")
                yield Lines([*result.details, *on_paper], margin="  ")
                shown |= {line.strip() for line in (result.headline, *result.details)}
        yield from self.explain(shown)


def diagnose(student: Student, cases: Sequence[Case]) -> Diagnosis:
    """Test the student's attention on the cases, each with the gradients that it has and to the last digit.

    Code that raises an error fails the test that meets it.
    """
    calls = Calls(student.adapters)

    def check(case: Case) -> None:
        case.require_gradients()
        answer = calls.run_scaled_dot_product_attention(case.Q, case.K, case.V, case.mask)
        if case.gradients:
            case.check_gradients(answer)
        else:
            case.check(answer)
        case.check_to_the_last_digit(answer)

    tests = [Test(case.name, check, ("", 0), stored=lambda case=case: case, problem=PROBLEM) for case in cases]
    suite = Suite(student.root, {}, tests, calls)
    results = [suite.run(test) for test in tests]
    return Diagnosis(results, explain(suite, results))
