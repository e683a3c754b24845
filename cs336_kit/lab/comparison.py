"""The student's attention beside PyTorch's: the diagnosis of some calls, and ten random ones.

It is that of a failing test, with what is found of it. Nothing else in the lab says why something is wrong.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import click
import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from cs336_kit.checking.board import Lines, said_once
from cs336_kit.engine.assignment import load_problems
from cs336_kit.engine.case import GRADIENT, Case
from cs336_kit.engine.compare import listed
from cs336_kit.engine.finding import Finding
from cs336_kit.engine.result import Check, Result
from cs336_kit.engine.silence import silence
from cs336_kit.engine.suite import Suite, Test
from cs336_kit.lab.student import Student, find_steps, list_earlier, make_call
from cs336_kit.way.explain import explain

INPUTS = (*("no mask", "causal mask", "random mask") * 2, "empty row", "large scores", "float16", "shared K and V")
LARGE = {"large scores": 10.0, "float16": 100.0}  # exp() of these overflows in float32, these themselves in float16


class Diagnosis(NamedTuple):
    """A suite of one test for each call, their results, and what is found if any of them failed."""

    suite: Suite
    results: list[Result]
    explanations: Sequence[Finding]

    @property
    def wrong(self) -> list[Result]:
        return [result for result in self.results if not result.passed]

    def tell(self) -> Iterator[RenderableType]:
        """Tell what is wrong with the first wrong answer, then what explains it; else the smallest wrong row."""
        first = self.wrong[0]
        on_paper = ("Nothing was found that explains it.", *first.on_paper)
        if self.explanations or first.check in (Check.CALL, Check.NOT_WRITTEN):
            on_paper = ()
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
    """Test the student's function on the cases, with their gradients; code that raises an error fails the test.

    To three digits, of which rounding leaves more only where inputs are not large; or to the last ones.
    """

    def check(case: Case) -> None:
        case.require_gradients()
        answer = getattr(student.adapters, case.call)(*case.inputs.values())
        if case.gradients:
            case.check_gradients(answer)
        else:
            case.check(answer)
        if last_digits:
            case.check_to_the_last_digit(answer)

    def make_test(case: Case, name: str) -> Test:
        return Test(name, check, ("", 0), stored=lambda: case, problem=steps[case.call][0])

    steps = find_steps()
    problem = steps[cases[0].call][0]
    # What earlier problems get right is not looked into; a function in a cell is no file of the assignment.
    before = list_earlier(student.root, problem) if student.own is None else []
    earlier = [make_test(case, f"{case.call}[{case.name}]") for case in before]
    tests = [make_test(case, case.name) for case in cases]
    problems = load_problems(student.root) if student.own is None else {}
    suite = Suite(student.root, problems, tests, student.adapters, cell=student.cell)
    with silence():
        results = [suite.run(test) for test in tests]
        of_earlier = [suite.run(test) for test in earlier] if any(result.is_wrong for result in results) else []
    found = explain(replace(suite, tests=[*earlier, *tests]), [*of_earlier, *results])
    own = [each for each in found if each.problem == problem]
    return Diagnosis(suite, results, found if any(each.is_of_earlier for each in own) else own)


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


def compare(seed: int = 0, *, attention: Callable[..., Tensor] | None = None) -> None:
    """Compare your attention, or this one, with PyTorch's on ten random inputs, as `cs336 compare` does."""
    Console(highlight=False).print(Group(*compare_with_pytorch(Student(attention), seed)[1]))


def compare_with_pytorch(student: Student, seed: int) -> tuple[bool, list[RenderableType]]:
    """Call both on ten random inputs of different shapes, masks and dtypes: do they agree, and if not, why?"""
    generator = torch.Generator().manual_seed(seed)
    cases = [_draw_input(name, generator) for name in INPUTS]
    diagnosis = diagnose(student, cases)
    table = Table("input", "Q", "K", "V", "off by", "", box=SIMPLE_HEAD, show_edge=False)
    for case, result in zip(cases, diagnosis.results, strict=True):
        shapes = ("×".join(map(str, x.shape)) for x in (case.Q, case.K, case.V))
        table.add_row(case.name, *shapes, _measure_error(student, case), "differs" if result.is_wrong else "")
    if not (wrong := diagnosis.wrong):
        agrees = f"\nOn all {len(cases)} inputs your attention agrees with PyTorch's, gradients included."
        return True, [table, Text(agrees)]
    which = f": {listed(dict.fromkeys(result.test for result in wrong))}" if len(wrong) < len(cases) else ""
    said = f"On {len(wrong)} of {len(cases)} inputs your attention differs from PyTorch's{which}."
    if all(result.check is Check.GRADIENT for result in wrong):
        said += " They differ in the gradients alone."
    return False, [table, Text(f"\n{said}\n"), *diagnosis.tell()]


def _draw_input(name: str, generator: torch.Generator) -> Case:
    queries, keys, d_k, d_v, dimensions = torch.randint(2, 17, (5,), generator=generator).tolist()
    batch = (2, 3)[: 2 if name == "shared K and V" else dimensions % 3]
    of_keys = (*batch[:-1], 1) if name == "shared K and V" else batch
    Q, K, V, cotangent = (
        torch.randn(size, generator=generator)
        for size in ((*batch, queries, d_k), (*of_keys, keys, d_k), (*of_keys, keys, d_v), (*batch, queries, d_v))
    )
    mask = None
    if name == "causal mask":
        mask = torch.ones(queries, keys, dtype=torch.bool).tril()
    elif name in ("random mask", "empty row"):
        mask = torch.rand(*batch, queries, keys, generator=generator) < 0.6
        mask[..., 0] = True
        mask[..., 0, :] &= name != "empty row"
    elif name in LARGE:  # whole numbers, which are not rounded
        Q, K = (LARGE[name] * torch.randint(-3, 4, x.shape, generator=generator) for x in (Q, K))
    if name == "float16":
        cotangent = cotangent / LARGE[name]  # a gradient of Q has K as a factor
        Q, K, V, cotangent = Q.half(), K.half(), V.half(), cotangent.half()
    return set_beside_pytorch(make_call(name, {"Q": Q, "K": K, "V": V, "mask": mask}), cotangent)


def _measure_error(student: Student, case: Case) -> str:
    try:
        with silence():
            answer = student.attention(case.Q, case.K, case.V, case.mask)
    except click.ClickException:
        return "fails"
    return f"{(answer - case.expected['answer']).abs().max():.0e}"
