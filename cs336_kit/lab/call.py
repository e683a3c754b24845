"""One call of attention: its arguments, and the scores that softmax should get.

The scores cannot be had from outside: they are the lab's own arithmetic, in float64, and a report says so.
"""

import math
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from itertools import groupby
from pathlib import Path
from posixpath import basename, dirname
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from cs336_kit.engine.case import GRADIENT, Case, CaseError, case_names, load_case
from cs336_kit.lab.bad_input import BadInput, reject_unreadable
from cs336_kit.lab.diagnosis import ADAPTER, set_beside_pytorch
from cs336_kit.lab.student import Student


@dataclass(frozen=True)
class Call:
    """The arguments of one call, of whatever shapes and dtypes they came in, and the stored case that they are from."""

    name: str
    Q: Tensor
    K: Tensor
    V: Tensor
    mask: Tensor | None
    stored: Case | None = None

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All that are there, by name."""
        tensors = {"Q": self.Q, "K": self.K, "V": self.V}
        return tensors if self.mask is None else tensors | {"mask": self.mask}

    @property
    def batch(self) -> torch.Size:
        """The batch-like dimensions that they broadcast to; a ValueError if they do not."""
        return torch.Size(np.broadcast_shapes(*(x.shape[:-2] for x in self.tensors.values())))

    @cached_property
    def scores(self) -> Float[Tensor, "... queries keys"]:
        """Q Kᵀ in float64."""
        return self.Q.double() @ self.K.double().mT

    @cached_property
    def scaled(self) -> Float[Tensor, "... queries keys"]:
        """The scores divided by √d_k."""
        return self.scores / math.sqrt(self.Q.shape[-1])

    @cached_property
    def allowed(self) -> Bool[Tensor, "... queries keys"]:
        """The mask in full: True where a query may attend to a key."""
        allowed = torch.ones_like(self.scores, dtype=torch.bool) if self.mask is None else self.mask
        return allowed.expand(*self.batch, *self.scores.shape[-2:])

    @cached_property
    def hidden(self) -> Float[Tensor, "... queries keys"]:
        """The scaled scores, -inf where the mask hides a key: what softmax should get."""
        return self.scaled.expand(self.allowed.shape).masked_fill(~self.allowed, -math.inf)

    @property
    def case(self) -> Case:
        """The stored case, or one that PyTorch's own attention answers, with an error that rounding can explain.

        What rounding does to a score, it does to the logarithm of a weight.
        """
        if self.stored:
            return self.stored
        products = self.Q.double().abs() @ self.K.double().abs().mT / math.sqrt(self.Q.shape[-1])
        in_scores = 4 * self.Q.shape[-1] * torch.finfo(torch.promote_types(self.Q.dtype, torch.float32)).eps
        rounding = 16 * torch.finfo(self.Q.dtype).eps + in_scores * float(products.amax())
        inputs = {"Q": self.Q, "K": self.K, "V": self.V, "mask": self.mask}
        return set_beside_pytorch(self.name, inputs, rounding * float(self.V.abs().amax()))

    def weights(self, student: Student) -> Float[Tensor, "... queries keys"]:
        """The student's weights, in float64.

        Raises:
            click.ClickException: their code raises an error, or gives no tensor of the right shape.
        """
        # Of one batch-like shape with the scores, whatever was to broadcast.
        return student.weights(self.Q, self.K.expand(*self.batch, *self.K.shape[-2:]), self.mask).double()


def read_call(path: Path) -> Call:
    """Read Q, K, V and, if it is there, mask from a safetensors file; a stored case has them as "input/Q".

    Raises:
        BadInput: the file is missing, is not a safetensors file, or lacks one of them.
    """
    try:
        with reject_unreadable(path):
            tensors = load_file(path)
    except SafetensorError as error:
        raise BadInput(
            f"{path} is not a safetensors file ({error}): write one with safetensors.torch.save_file"
        ) from None
    return _make_call(str(path), {name.removeprefix("input/"): x for name, x in tensors.items()})


def read_case(fixtures: Path, name: str) -> Call:
    """The inputs of a stored case of attention.

    Raises:
        BadInput: there is no such case, or it is of another function.
    """
    names = case_names(fixtures, "*/*")
    if name not in names:
        near = get_close_matches(name, (x for x in names if _is_call(fixtures, x)), n=3, cutoff=0.0)
        raise BadInput(f"there is no case {name}: is it one of {', '.join(near)}?")
    try:
        case = load_case(fixtures, name)
    except CaseError as error:
        raise BadInput(str(error)) from None
    call = _make_call(name, case.inputs)
    # Of blockwise attention, say, what attention has, too.
    inputs = {key: case.inputs.get(key) for key in ("Q", "K", "V", "mask")}
    right = {what: x for what, x in case.expected.items() if what == "answer" or what.startswith(GRADIENT)}
    return replace(call, stored=replace(case, call=ADAPTER, inputs=inputs, expected=right))


def list_cases(fixtures: Path) -> Iterator[str]:
    """Lines that name the stored cases of attention, folder by folder, and the command that looks into one."""
    calls = [name for name in case_names(fixtures, "*/*") if _is_call(fixtures, name)]
    for folder, cases in groupby(sorted(calls, key=dirname), dirname):
        yield from textwrap.wrap(
            f"{folder}/  {', '.join(map(basename, cases))}", 78, subsequent_indent="    ", break_on_hyphens=False
        )
    yield f"\nuv run cs336 debug --case {calls[0]}"


def _is_call(fixtures: Path, name: str) -> bool:
    with safe_open(fixtures / f"{name}.safetensors", framework="pt") as file:
        return {"input/Q", "input/K", "input/V"} <= set(file.keys())


def _make_call(name: str, inputs: dict[str, Any]) -> Call:
    if missing := [key for key in ("Q", "K", "V") if not isinstance(inputs.get(key), Tensor)]:
        raise BadInput(
            f"{name} lacks {' and '.join(missing)}, it has {', '.join(inputs) or 'nothing'}: "
            "a call of attention is Q, K, V and, if there is one, mask"
        )
    return Call(name, inputs["Q"], inputs["K"], inputs["V"], inputs.get("mask"))
