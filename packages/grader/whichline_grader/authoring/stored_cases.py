"""Write the fixtures, and check them against the references."""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from safetensors.torch import save
from torch import Tensor

from whichline.engine.assignment import SuiteError
from whichline.engine.case import (
    METADATA,
    Case,
    CaseError,
    dtype_of,
    list_case_names,
    list_tensors,
    load_case,
    load_metadata,
)
from whichline.engine.compare import add_article, change_tensors, in_dtype, name_dtype, same
from whichline_grader.authoring.cases import CaseSpec
from whichline_grader.authoring.spec import outputs_of, reference_of

GENERATOR_VERSION = 1

# Inputs are drawn in float32. Another processor draws the same ones up to this share of the largest.
DRAWN = 1e-5


def make_case(spec: CaseSpec, seed: int) -> Case:
    """Draw the inputs of a case and compute the expected outputs."""
    with _name_case_in_errors(spec):
        inputs, cotangent = spec.draw_inputs(seed), None
        if spec.gradients:
            answer, generator = compute_answers(spec.call, inputs)["answer"], torch.Generator().manual_seed(seed + 1)
            cotangent = torch.randn(answer.shape, generator=generator).to(dtype_of(inputs))
    return Case(spec.name, spec.call, inputs, cotangent, _compute_expected(spec, inputs, cotangent))


def _compute_expected(spec: CaseSpec, inputs: dict[str, Any], cotangent: Tensor | None) -> dict[str, Tensor]:
    with _name_case_in_errors(spec):
        expected = compute_answers(spec.call, inputs, spec.gradients, cotangent)
    for what, x in expected.items():
        if x.is_floating_point() and x.dtype != torch.float64:
            got = name_dtype(x.dtype)
            raise SuiteError(f"{spec.name}: {spec.call} gives the {what} in {got}, expected float64 of a reference")
    return expected


@contextmanager
def _name_case_in_errors(spec: CaseSpec) -> Iterator[None]:
    try:
        yield
    except SuiteError as error:
        raise SuiteError(f"{spec.name}: {error}") from None
    except Exception as error:
        raise SuiteError(f"{spec.name}: drawing it or {spec.call} raises {type(error).__name__}: {error}") from error


def public_seed(name: str) -> int:
    """The seed of a public case, which is no secret."""
    return crc32(name.encode())


def write_fixtures(
    folder: Path,
    specs: Sequence[CaseSpec],
    seed_of: Callable[[str], int] = public_seed,
    show: Callable[[str], None] = lambda name: None,
    only: Collection[str] = (),
) -> int:
    """Write anew each case that `check_fixtures` complains about.

    All other files stay as they are, to the last bit, since another processor rounds differently.

    If `only` some cases are named, it checks these; else all of them, and removes files of unknown cases. It calls
    `show` with the name of each, and returns how many were written. SuiteError if some cannot be made, and why.
    """
    strays, specs = _choose(folder, specs, only)
    for stray in strays:
        (folder / f"{stray}.safetensors").unlink()
    written, wrong = 0, dict[str, list[str]]()
    for spec in specs:
        show(spec.name)
        seed = seed_of(spec.name)
        try:
            if any(_list_complaints(folder, spec, seed)):
                _write(folder / f"{spec.name}.safetensors", make_case(spec, seed), seed)
                written += 1
        except SuiteError as error:
            why = str(error).removeprefix(f"{spec.name}: ")
            wrong.setdefault(why, []).append(spec.name)
    if wrong:
        more = {why: f" and {len(names) - 1} more" * (len(names) > 1) for why, names in wrong.items()}
        raise SuiteError("\n".join(f"{names[0]}{more[why]}: {why}" for why, names in wrong.items()))
    return written


def _write(path: Path, case: Case, seed: int) -> None:
    # safetensors stores no views, only whole, contiguous tensors.
    tensors = {key: x.contiguous() for key, x in list_tensors(case.inputs)}
    arguments = {key: x for key, x in case.inputs.items() if not isinstance(x, Tensor)}
    metadata = {"call": case.call, "order": list(case.inputs), "arguments": arguments, "seed": seed}
    metadata |= {"generator": GENERATOR_VERSION, "torch": torch.__version__, "sha256": _hash_tensors(tensors)}
    stored = {f"input/{key}": x for key, x in tensors.items()}
    stored |= {f"expected/{key}": x.contiguous() for key, x in case.expected.items()}
    if case.cotangent is not None:
        stored["cotangent"] = case.cotangent
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(metadata, sort_keys=True, default=lambda tensor: None)  # those in a dictionary are stored apart
    path.write_bytes(save(stored, {METADATA: text}))  # one key, since safetensors writes several in random order


def check_fixtures(
    folder: Path, specs: Sequence[CaseSpec], seed_of: Callable[[str], int] = public_seed, only: Collection[str] = ()
) -> Iterator[str]:
    """List the errors in the fixtures; none if they agree with the references."""
    strays, specs = _choose(folder, specs, only)
    yield from (f"{stray}: no case of this name is known; `staff verify --write` removes the file" for stray in strays)
    for spec in specs:
        try:
            yield from (f"{spec.name}: {complaint}" for complaint in _list_complaints(folder, spec, seed_of(spec.name)))
        except SuiteError as error:
            yield str(error)


def _choose(folder: Path, specs: Sequence[CaseSpec], only: Collection[str]) -> tuple[list[str], Sequence[CaseSpec]]:
    if only:
        return [], [spec for spec in specs if spec.name in only]
    return sorted(set(list_case_names(folder, "**/*")) - {spec.name for spec in specs}), specs


def _list_complaints(folder: Path, spec: CaseSpec, seed: int) -> Iterator[str]:
    if not (folder / f"{spec.name}.safetensors").exists():
        yield "is not written yet; `staff verify --write` writes it"
        return
    try:
        case, metadata = load_case(folder, spec.name), load_metadata(folder, spec.name)
    except CaseError as error:
        yield str(error)
        return
    if metadata["seed"] != seed:
        yield "drawn from another seed; write it again"
    if metadata["call"] != spec.call or metadata["generator"] != GENERATOR_VERSION:
        yield "made by another generator; write it again"
        return
    with _name_case_in_errors(spec):
        drawn = spec.draw_inputs(metadata["seed"])
    alike = [*case.inputs] == [*drawn] and all(map(_are_alike, case.inputs.values(), drawn.values()))
    if not alike or _hash_tensors(dict(list_tensors(case.inputs))) != metadata["sha256"]:
        yield "the inputs are not those that were drawn; write it again"
    if spec.gradients and case.cotangent is None:
        yield "stores no gradients; write it again"
        return
    expected = _compute_expected(spec, case.inputs, case.cotangent)
    if expected.keys() != case.expected.keys():
        yield f"stores {', '.join(case.expected)}, expected {', '.join(expected)}"
        return
    # As the reference computes it.
    in_float64 = replace(case, inputs=in_dtype(case.inputs, torch.float64), expected=expected)
    for what, rounding in in_float64.rounding.items():
        if not same(case.expected[what], expected[what], rounding, of=1.0).all():
            yield f"the stored {what} is not what the reference gives; write it again"


def _are_alike(one: Any, other: Any) -> bool:
    """Tell whether an input equals the one drawn, possibly on another processor."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_are_alike(one[key], other[key]) for key in one)
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return type(one) is type(other) and one == other
    rounding = DRAWN + torch.finfo(one.dtype).eps if one.is_floating_point() else 0.0
    return (one.shape, one.dtype) == (other.shape, other.dtype) and bool(same(one, other, rounding).all())


def compute_answers(
    call: str, inputs: dict[str, Any], gradients: Sequence[str] = (), cotangent: Tensor | None = None
) -> dict[str, Tensor]:
    """Compute the expected outputs of an adapter in float64, by their names, and the gradients of some inputs.

    The `cotangent` is the gradient of the loss with respect to the answer; if None, the loss is the sum of the answer.
    """
    inputs = change_tensors(in_dtype(inputs, torch.float64), Tensor.clone)
    for name in gradients:
        inputs[name].requires_grad_()
    given = reference_of(call)(**inputs)
    outputs, names = given if isinstance(given, tuple) else (given,), outputs_of(call)
    if len(outputs) != len(names):
        stated = f"`outputs` in SPEC names {len(names)}: {', '.join(names)}"
        raise SuiteError(f"{call} gives {len(outputs)} outputs, and {stated}")
    for output in (each for each in outputs if not isinstance(each, Tensor)):
        raise SuiteError(f"{call} gives {add_article(type(output).__name__)}, expected a tensor")
    found = {what: output.detach() for what, output in zip(names, outputs, strict=True)}
    if gradients:
        # Not grad_outputs: given those, autograd imports sympy, which takes half a second.
        loss = outputs[0] if cotangent is None else (outputs[0] * cotangent.to(outputs[0].dtype)).sum()
        cotangents = torch.autograd.grad(loss, [inputs[name] for name in gradients])
        found |= {f"gradient of {name}": x for name, x in zip(gradients, cotangents, strict=True)}
    return found


def _hash_tensors(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for key, x in sorted(tensors.items()):
        digest.update(f"{key} {x.dtype} {tuple(x.shape)} ".encode())
        digest.update(x.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
