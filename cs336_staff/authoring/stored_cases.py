"""Writing the stored cases, and checking that they are what the references give."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from safetensors.torch import save_file
from torch import Tensor

from cs336_kit.engine.case import METADATA, WEIGHTS, Case, CaseError, case_names, load_case, load_metadata
from cs336_staff.authoring import error_bounds, references
from cs336_staff.authoring.cases.spec import CaseSpec

GENERATOR_VERSION = 1

# The bounds are those of another processor up to this, relatively; what is smaller than NOTHING may be 0 on it.
SAME = 1e-12
NOTHING = 1e-300


def make_case(spec: CaseSpec, seed: int) -> Case:
    """Draw the inputs of a case and compute its answers and their bounds."""
    inputs = spec.draw(torch.Generator().manual_seed(seed))
    cotangent = _cotangent(spec, inputs, seed)
    expected = answers(spec.call, inputs, spec.gradients, cotangent)
    return Case(spec.name, spec.call, inputs, cotangent, expected, bounds_of(spec.call, inputs, expected, cotangent))


def public_seed(name: str) -> int:
    """The seed of a public case, which need not be secret."""
    return crc32(name.encode())


def write_fixtures(
    folder: Path,
    specs: Sequence[CaseSpec],
    seed_of: Callable[[str], int] = public_seed,
    show: Callable[[str], None] = lambda name: None,
) -> None:
    """Draw the inputs of every case, compute the answers and store both; files of no case are removed.

    Args:
        folder: where the files go.
        specs: the cases.
        seed_of: the seed of the case with a name.
        show: called with the name of each case before it is made.
    """
    for stray in set(case_names(folder, "**/*")) - {spec.name for spec in specs}:
        (folder / f"{stray}.safetensors").unlink()
    for spec in specs:
        show(spec.name)
        seed = seed_of(spec.name)
        case = make_case(spec, seed)
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
        }
        stored = {f"input/{key}": x for key, x in tensors.items()}
        stored |= {f"expected/{key}": x.contiguous() for key, x in case.expected.items()}
        stored |= {f"bound/{key}": x.contiguous() for key, x in case.bound.items()}
        if case.cotangent is not None:
            stored["cotangent"] = case.cotangent
        path = folder / f"{spec.name}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        # One key: safetensors writes several in an order that differs from run to run.
        save_file(stored, path, {METADATA: json.dumps(metadata, sort_keys=True)})


def check_fixtures(
    folder: Path, specs: Sequence[CaseSpec], seed_of: Callable[[str], int] = public_seed
) -> Iterator[str]:
    """List what is wrong with the stored cases; nothing when they are what the references give."""
    names = {spec.name for spec in specs}
    for stray in sorted(set(case_names(folder, "**/*")) - names):
        yield f"{stray}: no case of this name is known"
    for spec in specs:
        try:
            case = load_case(folder, spec.name)
            metadata = load_metadata(folder, spec.name)
            if metadata["seed"] != seed_of(spec.name):
                yield f"{spec.name}: drawn from another seed; write it again"
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
    bounds = bounds_of(spec.call, case.inputs, expected, case.cotangent)
    # What the reference itself may round to, in float64.
    own = bounds_of(spec.call, _wide(case.inputs), expected, case.cotangent)
    for what, right in expected.items():
        if bool(((case.expected[what] - right).abs() > own[what]).any()):
            yield f"the stored {what} is not what the reference gives"
        if what not in case.bound or not torch.allclose(case.bound[what], bounds[what], rtol=SAME, atol=NOTHING):
            yield f"the stored bound of the {what} is not that of its inputs"


def answers(call: str, inputs: dict[str, Any], gradients: Sequence[str], cotangent: Tensor | None) -> dict[str, Tensor]:
    """Compute what the reference gives in float64: the answer and the gradient of each input in `gradients`."""
    return answers_of(getattr(references, call), inputs, gradients, cotangent)


def answers_of(
    adapter: Any, inputs: dict[str, Any], gradients: Sequence[str], cotangent: Tensor | None
) -> dict[str, Tensor]:
    """Compute what an adapter gives in float64: the answer and, for each of `gradients`, the gradient of that input."""
    return _evaluate(adapter, _wide(inputs), gradients, cotangent)


def bounds_of(
    call: str, inputs: dict[str, Any], expected: dict[str, Tensor], cotangent: Tensor | None
) -> dict[str, Tensor]:
    """For each of `expected`, how far a right answer may lie from it."""
    found = error_bounds.bounds(call, inputs, cotangent)
    return {what: found[what] for what in expected}


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
        # Given a cotangent, autograd imports sympy, which takes half a second.
        loss = parts[0] if cotangent is None else (parts[0] * cotangent.to(parts[0].dtype)).sum()
        cotangents = torch.autograd.grad(loss, leaves)
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
