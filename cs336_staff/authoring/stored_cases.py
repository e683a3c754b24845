"""Writing the stored cases, and checking that they are what the references give."""

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from safetensors.torch import save_file
from torch import Tensor

from cs336_kit.engine.case import METADATA, WEIGHTS, Case, CaseError, Outcomes, case_names, load_case, load_metadata
from cs336_kit.examination.diagnosis import MISTAKES_FILE
from cs336_staff.authoring import references
from cs336_staff.authoring.cases.spec import CaseSpec
from cs336_staff.authoring.right_styles import CORRECT
from cs336_staff.authoring.wrong import mistakes_as_json, packed, same_outcome, wrong_outcomes

GENERATOR_VERSION = 1

# A tolerance is this many times the spread of the right implementations, and at least this many ulp.
HEADROOM = 4
FLOOR_ULP = 4


def make_case(spec: CaseSpec, seed: int) -> Case:
    """Draw the inputs of a case and compute its answers and tolerances."""
    inputs = spec.draw(torch.Generator().manual_seed(seed))
    cotangent = _cotangent(spec, inputs, seed)
    expected = answers(spec.call, inputs, spec.gradients, cotangent)
    return Case(spec.name, inputs, cotangent, expected, tolerances(spec.call, inputs, expected, cotangent))


def write_fixtures(folder: Path, specs: Sequence[CaseSpec], release_seed: int | None = None) -> None:
    """Draw the inputs of every case, compute the answers and store both; files of no case are removed.

    Args:
        folder: where the files go.
        specs: the cases.
        release_seed: for hidden cases, the secret that their seeds come from.
    """
    for stray in set(case_names(folder, "**/*")) - {spec.name for spec in specs}:
        (folder / f"{stray}.safetensors").unlink()
    (folder / MISTAKES_FILE).write_text(mistakes_as_json(), encoding="utf-8")
    for spec in specs:
        seed = crc32(spec.name.encode() if release_seed is None else f"{release_seed} {spec.name}".encode())
        case = make_case(spec, seed)
        wrong_tensors, signs = packed(wrong_outcomes(case, spec.call))
        # What a neighbour's seed drew must not be a view: safetensors stores whole, contiguous tensors.
        tensors = {key: x.contiguous() for key, x in case.inputs.items() if isinstance(x, Tensor)}
        metadata = {
            "call": spec.call,
            "order": list(case.inputs),
            "arguments": {key: x for key, x in case.inputs.items() if not isinstance(x, Tensor)},
            "seed": seed,
            "generator": GENERATOR_VERSION,
            "torch": torch.__version__,
            "sha256": _sha256(tensors),
            "tolerance": case.tolerance,
            "signs": signs,
        }
        stored = {f"input/{key}": x for key, x in tensors.items()}
        stored |= {f"expected/{key}": x.contiguous() for key, x in case.expected.items()}
        if case.cotangent is not None:
            stored["cotangent"] = case.cotangent
        stored |= wrong_tensors
        path = folder / f"{spec.name}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        # One key: safetensors writes several in an order that differs from run to run.
        save_file(stored, path, {METADATA: json.dumps(metadata, sort_keys=True)})


def check_fixtures(folder: Path, specs: Sequence[CaseSpec]) -> Iterator[str]:
    """What is wrong with the stored cases, one line each; nothing when they are what the references give."""
    names = {spec.name for spec in specs}
    for stray in sorted(set(case_names(folder, "**/*")) - names):
        yield f"{stray}: no case of this name is known"
    if not (folder / MISTAKES_FILE).exists() or (folder / MISTAKES_FILE).read_text("utf-8") != mistakes_as_json():
        yield f"{MISTAKES_FILE}: not what the catalogue says"
    for spec in specs:
        try:
            case = load_case(folder, spec.name)
            metadata = load_metadata(folder, spec.name)
            yield from (f"{spec.name}: {complaint}" for complaint in _complaints(spec, case, metadata))
        except CaseError as error:
            yield f"{spec.name}: {error}"


def _complaints(spec: CaseSpec, case: Case, metadata: dict[str, Any]) -> Iterator[str]:
    if metadata["call"] != spec.call or metadata["generator"] != GENERATOR_VERSION:
        yield "made by another generator; write it again"
        return
    if _sha256({key: x for key, x in case.inputs.items() if isinstance(x, Tensor)}) != metadata["sha256"]:
        yield "the inputs are not those that were drawn"
    expected = answers(spec.call, case.inputs, spec.gradients, case.cotangent)
    if expected.keys() != case.expected.keys():
        yield f"stores {', '.join(case.expected)}, expected {', '.join(expected)}"
        return
    spreads = spread(spec.call, case.inputs, expected, case.cotangent)
    for what, right in expected.items():
        if not torch.allclose(case.expected[what], right, rtol=1e-10, atol=1e-12):
            yield f"the stored {what} is not what the reference gives"
        if max(spreads[what].values()) > case.tolerance[what]:
            yield f"the tolerance of the {what} refuses a right implementation"
    yield from _complaints_about_wrong(case, wrong_outcomes(case, spec.call))


def _complaints_about_wrong(case: Case, outcomes: dict[str, Outcomes]) -> Iterator[str]:
    stored = case.wrong()
    for id in sorted(stored.keys() ^ outcomes.keys()):
        yield f"wrong/{id} is {'stored' if id in stored else 'missing'}, and should {'not ' if id in stored else ''}be"
    for id in stored.keys() & outcomes.keys():
        different = [check for check, x in outcomes[id].items() if not same_outcome(stored[id].get(check), x)]
        if not all(_passes_elsewhere(outcomes[id][check], check, case) for check in different):
            yield f"the stored wrong/{id} is not what the misconception gives"


def _passes_elsewhere(outcome: Tensor | str, check: str, case: Case) -> bool:
    """Whether rounding decides if it is wrong, which depends on the processor and on where tensors lie in memory."""
    if not isinstance(outcome, Tensor) or check not in case.expected or outcome.shape != case.expected[check].shape:
        return False
    return bool(((outcome.double() - case.expected[check]).abs() <= 2 * case.tolerance[check]).all())


def answers(call: str, inputs: dict[str, Any], gradients: Sequence[str], cotangent: Tensor | None) -> dict[str, Tensor]:
    """What the reference gives in float64: the answer and, for each of `gradients`, the gradient of that input."""
    return _evaluate(getattr(references, call), _wide(inputs), gradients, cotangent)


def spread(
    call: str, inputs: dict[str, Any], expected: dict[str, Tensor], cotangent: Tensor | None
) -> dict[str, dict[str, float]]:
    """For each of `expected`, the largest error of each right implementation, in the dtype of the inputs."""
    gradients = [what.removeprefix("gradient of ") for what in expected if what.startswith("gradient of ")]
    errors: dict[str, dict[str, float]] = {what: {} for what in expected}
    for style, adapters in CORRECT.items():
        for what, answer in _evaluate(adapters[call], inputs, gradients, cotangent).items():
            errors[what][style] = float((answer.double() - expected[what]).abs().max())
    return errors


def tolerances(
    call: str, inputs: dict[str, Any], expected: dict[str, Tensor], cotangent: Tensor | None
) -> dict[str, float]:
    """For each of `expected`, the largest error that is still right, rounded up to one digit."""
    dtype = _dtype(inputs)
    spreads = spread(call, inputs, expected, cotangent)
    found = {}
    for what, right in expected.items():
        ulp = torch.finfo(dtype).eps * max(float(right.abs().max()), torch.finfo(dtype).tiny)
        found[what] = _rounded_up(max(HEADROOM * max(spreads[what].values()), FLOOR_ULP * ulp))
    return found


def _evaluate(
    adapter: Any, inputs: dict[str, Any], gradients: Sequence[str], cotangent: Tensor | None
) -> dict[str, Tensor]:
    inputs = {key: x.clone() if isinstance(x, Tensor) else x for key, x in inputs.items()}
    if "training" in inputs:  # nothing is dropped at random
        inputs["training"] = False
    for name in gradients:
        inputs[name].requires_grad_()
    given = adapter(**inputs)
    parts = given if isinstance(given, tuple) else (given,)
    found = {what: part.detach() for what, part in zip(("answer", WEIGHTS), parts, strict=False)}
    if gradients:
        leaves = [inputs[name] for name in gradients]
        cotangents = torch.autograd.grad(parts[0], leaves, None if cotangent is None else cotangent.to(parts[0].dtype))
        found |= {f"gradient of {name}": x for name, x in zip(gradients, cotangents, strict=True)}
    return found


def _cotangent(spec: CaseSpec, inputs: dict[str, Any], seed: int) -> Tensor | None:
    if not spec.gradients:
        return None
    answer = _evaluate(getattr(references, spec.call), _wide(inputs), (), None)["answer"]
    return torch.randn(answer.shape, generator=torch.Generator().manual_seed(seed + 1)).to(_dtype(inputs))


def _wide(inputs: dict[str, Any]) -> dict[str, Any]:
    return {key: x.double() if isinstance(x, Tensor) and x.is_floating_point() else x for key, x in inputs.items()}


def _dtype(inputs: dict[str, Any]) -> torch.dtype:
    return next(x.dtype for x in inputs.values() if isinstance(x, Tensor) and x.is_floating_point())


def _sha256(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for key in sorted(tensors):
        x = tensors[key].contiguous()
        digest.update(f"{key} {x.dtype} {tuple(x.shape)} ".encode())
        digest.update(x.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _rounded_up(x: float) -> float:
    """7.31e-6 becomes 8e-6: a figure that people can read, and that another processor's rounding seldom changes."""
    power = 10.0 ** math.floor(math.log10(x))
    return math.ceil(x / power) * power
