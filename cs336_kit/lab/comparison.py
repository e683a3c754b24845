"""The student's attention beside PyTorch's, on random inputs."""

from collections.abc import Iterator

import click
import torch
from rich.console import RenderableType
from rich.text import Text

from cs336_kit.engine.case import GRADIENT, Case
from cs336_kit.engine.compare import listed
from cs336_kit.engine.result import Check
from cs336_kit.lab.diagnosis import Diagnosis, diagnose, set_beside_pytorch
from cs336_kit.lab.student import Student, find_gradients
from cs336_kit.lab.view import make_table

TOLERANCE, IN_HALF_PRECISION, IN_WORDS = 1e-5, 5e-3, "1e-5 (5e-3 in float16)"

# What each input has, and its leading dimensions.
INPUTS = (
    ("no mask", ()),
    ("causal mask", (2,)),
    ("random mask", (2, 3)),
    ("no mask", (2, 3)),
    ("causal mask", ()),
    ("random mask", (2,)),
    ("empty row", (2,)),
    ("large scores", (2,)),
    ("float16", (2,)),
    ("shared K and V", (2, 3)),
)
LARGE = {"large scores": 10.0, "float16": 100.0}  # exp() of these overflows in float32, these themselves in float16

Errors = tuple[float, float]  # of the output, and of the gradients of Q, K and V for a random gradient of the output


# The inputs with PyTorch's answers, how far the student's are from them at most (None where a call fails), and why.
Comparison = tuple[list[Case], list[Errors | None], Diagnosis]


def compare_with_pytorch(student: Student, seed: int) -> Comparison:
    """Call both on ten random inputs of different shapes, masks and dtypes.

    Raises:
        click.ClickException: the student's code raises an error, or gives no tensor of the right shape, on all of them.
    """
    generator = torch.Generator().manual_seed(seed)
    cases = [_draw_input(name, batch, generator) for name, batch in INPUTS]
    errors: list[Errors | None] = []
    for case in cases:
        try:
            errors.append(_measure_errors(student, case))
        except click.ClickException:
            if case is cases[-1] and not any(errors):
                raise
            errors.append(None)
    return cases, errors, diagnose(student, cases)


def _draw_input(name: str, batch: tuple[int, ...], generator: torch.Generator) -> Case:
    queries, keys, d_k, d_v = torch.randint(2, 17, (4,), generator=generator).tolist()
    of_keys = (*batch[:-1], 1) if name == "shared K and V" else batch
    Q, K, V, cotangent = (
        torch.randn(size, generator=generator)
        for size in ((*batch, queries, d_k), (*of_keys, keys, d_k), (*of_keys, keys, d_v), (*batch, queries, d_v))
    )
    mask, within = None, TOLERANCE
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
        Q, K, V, cotangent, within = Q.half(), K.half(), V.half(), cotangent.half(), IN_HALF_PRECISION
    return set_beside_pytorch(name, {"Q": Q, "K": K, "V": V, "mask": mask}, within, cotangent)


def _measure_errors(student: Student, case: Case) -> Errors:
    case = case.copy()
    case.require_gradients()
    output = student.differentiable(case.Q, case.K, case.V, case.mask)
    answers = {"answer": output.detach()}
    leaves = [case.Q, case.K, case.V]
    if output.requires_grad:
        assert case.cotangent is not None
        found = find_gradients(output, case.cotangent, leaves)
    else:
        found = tuple(torch.full_like(x, torch.nan) for x in leaves)
    answers |= {GRADIENT + name: x for name, x in zip("QKV", found, strict=True)}
    of_output, *of_gradients = (float((x - case.expected[what]).abs().max()) for what, x in answers.items())
    return of_output, float(torch.tensor(of_gradients).max())  # NaN, if one of them is


def describe_comparison(
    cases: list[Case], all_errors: list[Errors | None], diagnosis: Diagnosis
) -> Iterator[RenderableType]:
    """A table, the inputs that differ, and what the examination finds."""
    results, rows = diagnosis.results, []
    for case, errors, result in zip(cases, all_errors, results, strict=True):
        *batch, queries, d_k = case.Q.shape
        numbers = (f"{error:.0e}" for error in errors) if errors else ("fails", "fails")
        sizes = map(str, (queries, case.K.shape[-2], d_k, case.V.shape[-1]))
        rows.append((case.name, "×".join(map(str, batch)) or "none", *sizes, *numbers, "" if result.passed else "→"))
    yield make_table(("input", "batch", "queries", "keys", "d_k", "d_v", "output", "gradients", ""), rows)
    yield ""
    differ = [result.test for result in results if not result.passed]
    if not differ:
        yield Text(f"On all {len(results)} inputs your attention is PyTorch's to {IN_WORDS}, gradients included.")
        return
    which = f": {listed(dict.fromkeys(differ))}" if len(differ) < len(results) else ""
    yield Text(f"On {len(differ)} of {len(results)} inputs your attention is not PyTorch's to {IN_WORDS}{which}.")
    if all(result.passed or result.check is Check.GRADIENT for result in results):
        yield Text("They differ in the gradients alone.")
    yield from diagnosis.explain() if diagnosis.explanations else diagnosis.tell_failures()
