"""What each misconception gives on a case, as it is stored beside the right answer."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.case import Case, Outcomes
from cs336_kit.engine.compare import WrongAnswer, compare
from cs336_kit.examination.relations import relations
from cs336_staff.authoring.misconceptions import CATALOGUE
from cs336_staff.authoring.misconceptions.parts import Misconception


def wrong_outcomes(case: Case, call: str) -> dict[str, Outcomes]:
    """What each misconception gives where it does not pass, by its id.

    Args:
        case: the case; its inputs are left alone.
        call: the adapter that the case calls.
    """
    found = {}
    for entry in CATALOGUE.values():
        if call in entry.adapters and (outcomes := dict(_outcomes(entry, case, call))):
            found[entry.id] = outcomes
    return found


def packed(wrong: dict[str, Outcomes]) -> tuple[dict[str, Tensor], dict[str, dict[str, str]]]:
    """The tensors under the names that `cs336_kit.engine.case.load_wrong` reads, and the words for the metadata."""
    tensors: dict[str, Tensor] = {}
    words: dict[str, dict[str, str]] = {}
    for id, outcomes in wrong.items():
        for check, outcome in outcomes.items():
            if isinstance(outcome, Tensor):
                tensors[f"wrong/{id}" if check == "answer" else f"wrong/{id}/{check}"] = outcome.contiguous()
            else:
                words.setdefault(id, {})[check] = outcome
    return tensors, words


def same_outcome(stored: Tensor | str | None, outcome: Tensor | str) -> bool:
    """Whether two outcomes are the same up to the rounding of another processor."""
    if isinstance(stored, Tensor) and isinstance(outcome, Tensor):
        same_form = stored.shape == outcome.shape and stored.dtype == outcome.dtype
        eps = torch.finfo(outcome.dtype).eps
        largest = float(outcome.nan_to_num(0.0, 0.0, 0.0).abs().max())
        return same_form and torch.allclose(stored, outcome, rtol=64 * eps, atol=64 * eps * largest, equal_nan=True)
    return isinstance(stored, str) and isinstance(outcome, str) and stored == outcome


def mistakes_as_json() -> str:
    """What students read of the misconceptions: names, hints and sections."""
    entries = {m.id: {"name": m.name, "hint": m.hint, "section": m.section} for m in CATALOGUE.values()}
    return json.dumps(entries, indent=1, ensure_ascii=False) + "\n"


def _outcomes(entry: Misconception, case: Case, call: str) -> Iterator[tuple[str, Tensor | str]]:
    inputs = {name: x.detach().clone() if isinstance(x, Tensor) else x for name, x in case.inputs.items()}
    leaves = {name: inputs[name].requires_grad_() for name in case.gradients}
    before = {name: x.detach().clone() for name, x in inputs.items() if isinstance(x, Tensor)}
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)  # that of the processor: torch.manual_seed takes longer than the call
        try:
            answer = entry.adapters[call](**inputs)
        except Exception:
            yield "answer", "raises"
            return
    if case.drops:
        looked_at = replace(case)
        try:
            looked_at.check(answer)
        except WrongAnswer as error:
            if error.outcome is not None:
                yield looked_at.checks[-1], error.outcome
        return
    parts = case.parts(answer)
    answer = parts["answer"]
    wrong = next((what for what, part in parts.items() if _is_wrong(part, what, case)), None)
    if wrong == "answer":
        yield "answer", _recognised(entry, answer, case)
    elif wrong:
        yield wrong, parts[wrong].detach()
    elif leaves and not answer.requires_grad:
        yield "gradients", "detached"
    elif leaves:
        yield from _gradients(answer, leaves, case)
    if any(not torch.equal(inputs[name].detach(), x) for name, x in before.items()):
        yield "inputs", "changed"


def _gradients(answer: Tensor, leaves: dict[str, Tensor], case: Case) -> Iterator[tuple[str, Tensor | str]]:
    try:
        gradients = torch.autograd.grad(answer, list(leaves.values()), case.cotangent, allow_unused=True)
    except RuntimeError:
        yield "gradients", "raises"
        return
    for name, gradient in zip(leaves, gradients, strict=True):
        what = f"gradient of {name}"
        if gradient is None:
            yield what, "missing"
        elif _is_wrong(gradient, what, case):
            yield what, gradient


def _is_wrong(answer: Any, what: str, case: Case) -> bool:
    try:
        compare(answer, case.expected[what], case.dtype, case.tolerance[what])
    except WrongAnswer:
        return True
    return False


def _recognised(entry: Misconception, answer: Tensor, case: Case) -> Tensor | str:
    """The numbers of the answer, or the sign by which it is known if it shows here."""
    if not entry.sign:
        return answer.detach()
    found = relations(answer, case.expected["answer"], case.dtype, case.tolerance["answer"], case.inputs)
    return entry.sign if entry.sign in found else answer.detach()
